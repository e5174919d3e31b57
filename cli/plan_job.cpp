#include "cli/plan_job.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "cli/commands.h"
#include "cli/progress_line.h"
#include "core/error.h"
#include "sim/program/stage_layout.h"

namespace orrery::cli {
namespace {

std::vector<std::string> schedule_names() {
    std::vector<std::string> names;
    names.reserve(program::kScheduleCount);
    for (int i = 0; i < program::kScheduleCount; ++i) names.push_back(name_of(static_cast<program::Schedule>(i)));
    return names;
}

std::vector<std::string> part_names() {
    std::vector<std::string> names;
    for (int i = 1; i < models::kBlockParts; ++i) {  // 0: none
        names.emplace_back(models::name_of(static_cast<models::BlockPart>(i)));
    }
    return names;
}

/// The orders of the mesh's axes that the search knows: replicas before stages, and stages before replicas.
std::vector<std::string> order_names() {
    return {mesh_order_text(program::Parallelism()),
            mesh_order_text(program::Parallelism{.order = sim::kStagesBeforeReplicas})};
}

/// fp32 on CPUs; on GPUs the 16-bit type that the implementation supports.
std::string default_precision(bool on_cpu, const models::Support& supports) {
    if (on_cpu) return "fp32";
    for (const char* precision : {"bf16", "fp16"}) {
        const std::vector<std::string>& known = supports.precisions;
        if (known.empty() || models::Support::lists(known, precision)) return precision;
    }
    return "fp32";
}

/// Where each value of the plans comes from, by JSON pointer.
std::map<std::string, std::string> origins_of(const PlanJob& job) {
    std::map<std::string, std::string> origins = origins_of(job.space);
    if (!job.moments.empty()) origins["/training/precision/moments"] = "flag";
    if (job.clip_norm > 0) origins["/training/optimizer/clip_norm"] = "flag";
    if (job.post_validation) origins["/training/optimizer/post_validation"] = "flag";
    const auto chosen = [](std::int64_t given) { return given != 0 ? "flag" : "planner"; };
    const auto named = [](const std::string& given) { return given.empty() ? "planner" : "flag"; };
    origins.merge(std::map<std::string, std::string>{
        {"/model", "flag"},
        {"/cluster", "flag"},
        {"/implementation", job.implementations.empty() ? "default" : "flag"},
        {"/parallelism/tp", chosen(job.tp)},
        {"/parallelism/pp", chosen(job.pp)},
        {"/parallelism/dp", chosen(job.dp)},
        {"/parallelism/cp", chosen(job.cp)},
        {"/parallelism/ep", chosen(job.ep)},
        {"/parallelism/sequence_parallel", "planner"},
        {"/parallelism/schedule", named(job.schedule)},
        {"/parallelism/chunks", chosen(job.chunks)},
        {"/parallelism/data_parallel", named(job.data_parallel)},
        {"/parallelism/dp_shard", chosen(job.dp_shard)},
        {"/parallelism/reshard_after_forward", named(job.reshard)},
        {"/parallelism/order", named(job.order)},
        {"/parallelism/stage_layers", named(job.stage_layout)},
        {"/training/memory/recompute", named(job.recompute)},
        {"/training/memory/recompute_parts", job.recompute_parts.empty() ? "planner" : "flag"},
        {"/training/memory/recompute_layers", "planner"},
        {"/training/micro_batch_size", chosen(job.micro_batch)},
        {"/training/global_batch_size", "flag"},
        {"/training/sequence_length", "flag"},
        {"/training/precision", job.precision.empty() ? "default" : "flag"}});
    return origins;
}

sim::PlanRequest make_request(const PlanJob& job, const models::ModelSpec& model,
                              const topologies::ClusterSpec& cluster, const std::string& implementation) {
    sim::PlanRequest request;
    request.model = model;
    request.cluster = cluster;
    request.implementation = models::load_implementation(implementation);
    request.devices = job.devices;
    request.memory_margin_gib = job.memory_margin_gib;
    const bool on_cpu = request.cluster.ranks_may_share_devices();
    const std::string precision =
        job.precision.empty() ? default_precision(on_cpu, request.implementation.supports) : job.precision;
    request.training.sequence_length = job.sequence;
    request.training.global_batch_size = job.global_batch;
    request.rates = program::resolve_rates(request.implementation, request.cluster);
    request.training.precision = program::precision_named(precision, request.implementation);
    if (!job.moments.empty()) request.training.precision.moments = *dtype_named(job.moments);
    request.training.optimizer.clip_norm = job.clip_norm;
    request.training.optimizer.post_validation = job.post_validation;
    request.training.dropout = request.implementation.default_dropout;
    request.training.seed = static_cast<std::uint64_t>(job.seed);
    request.training.data = job.data;
    // Plans for CPU ranks are restricted to what the executor runs; the default request has only 1F1B pipelines and
    // ddp.
    if (!on_cpu) sim::allow_every_technique(request);
    if (on_cpu && job.cp == 0) request.cp = 1;
    apply_space(job.space, request);
    if (!job.schedule.empty()) request.schedules = {program::schedule_named(job.schedule)};
    if (!job.data_parallel.empty()) {
        request.data_parallel = {program::data_parallel_named(job.data_parallel)};
    }
    if (!job.recompute.empty()) request.recompute = {program::recompute_named(job.recompute)};
    request.observer = search_line();
    request.tp = job.tp;
    request.pp = job.pp;
    request.dp = job.dp;
    if (job.cp != 0) request.cp = job.cp;
    request.ep = job.ep;
    if (!job.stage_layout.empty()) {
        request.stage_layers = program::stage_layout_named(job.stage_layout, "command line", "--stage-layout");
    }
    request.micro_batch_size = job.micro_batch;
    request.chunks = job.chunks;
    request.dp_shard = job.dp_shard;
    if (!job.reshard.empty()) {
        request.reshard_after_forward = job.reshard == "true";
        request.data_parallel = {program::DataParallel::zero3};  // the only kind that gathers parameters
    }
    if (!job.order.empty()) request.pp_before_dp = job.order == order_names().back();
    if (!job.recompute_parts.empty()) {
        request.training.memory.recompute_parts = job.recompute_parts;
        request.recompute = {program::Recompute::selective};
    }
    request.excluded = exclusions_of(job.goal);
    request.max_memory_bytes = max_memory_bytes(
        job.goal, {.cluster = cluster, .parallelism = {.dp = job.devices}, .training = request.training},
        job.memory_margin_gib);
    request.origins = origins_of(job);
    return request;
}

/// Throws InputError if none of the implementations supports the requested pipeline schedule.
void check_schedule(const PlanJob& job, const std::vector<std::string>& implementations) {
    if (job.schedule.empty()) return;
    std::set<std::string> known;
    for (const std::string& name : implementations) {
        const models::Support supports = models::load_implementation(name).supports;
        // If nothing is stated, nothing is refused.
        if (supports.source.empty() || models::Support::lists(supports.schedules, job.schedule)) return;
        known.insert(supports.schedules.begin(), supports.schedules.end());
    }
    throw InputError("command line", "--schedule", job.schedule,
                     known.empty()
                         ? fmt::format("none, since {} has no pipelines", fmt::join(implementations, ", "))
                         : fmt::format("{}, which {} has", fmt::join(known, ", "), fmt::join(implementations, ", ")));
}

/// Options that fix what the search would choose.
void add_choice_options(CLI::App& command, PlanJob& job) {
    const auto degree = CLI::Range(std::int64_t{1}, std::int64_t{1} << 20);
    command.add_option("--tp", job.tp, "Only this tensor-parallel degree")->check(degree);
    command.add_option("--pp", job.pp, "Only this pipeline-parallel degree")->check(degree);
    command.add_option("--dp", job.dp, "Only this data-parallel degree")->check(degree);
    command.add_option("--cp", job.cp, "Only this context-parallel degree")->check(degree);
    command.add_option("--ep", job.ep, "Only this expert-parallel degree")->check(degree);
    command.add_option("--micro-batch", job.micro_batch, "Only this micro-batch size")->check(degree);
    command.add_option("--schedule", job.schedule, "Only this pipeline schedule")
        ->check(CLI::IsMember(schedule_names()));
    command.add_option(
        "--stage-layout", job.stage_layout,
        "Only these blocks on each virtual stage, as Megatron writes them: E embedding, t block, L head, "
        "| between stages, *n and (...)*n repeat; for example Et*3|(t*4|)*6t*3L");
    command.add_option("--data-parallel", job.data_parallel, "Only this kind of data parallelism")
        ->check(CLI::IsMember({"ddp", "zero1", "zero2", "zero3"}));
    command.add_option("--recompute", job.recompute, "Only this kind of activation recomputation")
        ->check(CLI::IsMember({"none", "selective", "full"}));
    command.add_option("--chunks", job.chunks, "Only this number of model chunks of a pipeline rank")->check(degree);
    command
        .add_option("--dp-shard", job.dp_shard,
                    "Only ZeRO with shards over this many data-parallel ranks; the sets of shards are replicas (HSDP)")
        ->check(CLI::Range(std::int64_t{2}, std::int64_t{1} << 20));
    command
        .add_option("--reshard-after-forward", job.reshard,
                    "Only zero3 that frees the gathered parameters after the forward pass (true) or keeps them (false)")
        ->check(CLI::IsMember({"true", "false"}));
    command.add_option("--order", job.order, "Only this order of the mesh's axes, the fastest-varying first")
        ->check(CLI::IsMember(order_names()));
    command
        .add_option("--recompute-parts", job.recompute_parts,
                    "Only selective recomputation of these parts of a block, separated by commas")
        ->delimiter(',')
        ->check(CLI::IsMember(part_names()));
}

/// Options of the optimizer, which the search takes as given.
void add_optimizer_options(CLI::App& command, PlanJob& job) {
    command
        .add_option("--moments", job.moments,
                    "Stored type of AdamW's first and second moments: fp32 (default) or bf16. Master weights stay fp32")
        ->check(CLI::IsMember(program::moment_types()));
    command.add_option("--clip-norm", job.clip_norm, "Clip gradients to this norm; 0: no clipping")
        ->check(CLI::Range(0.0, 1e6))
        ->capture_default_str();
    command.add_flag("--post-validation", job.post_validation,
                     "Update each stage with its own part of the gradient norm, and validate the update under the next "
                     "step's forward passes (needs --clip-norm or fp16)");
}

}  // namespace

std::vector<CLI::Option*> add_model_options(CLI::App& command, PlanJob& job) {
    CLI::Option* model =
        command.add_option("--model", job.model, "Zoo name, or path of a Hugging Face config.json")->required();
    add_text_only_option(command, job.parts);
    CLI::Option* cluster =
        command.add_option("--cluster", job.cluster, "Preset name (orrery clusters), `local`, or a cluster file")
            ->required();
    return {model, cluster};
}

CLI::Option* add_sequence_option(CLI::App& command, PlanJob& job) {
    return command.add_option("--seq", job.sequence, "Tokens a sequence")
        ->required()
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
}

void add_request_options(CLI::App& command, PlanJob& job) {
    command
        .add_option("--precision", job.precision,
                    "Default: bf16 on GPUs (fp16 if the implementation has no bf16), fp32 on local")
        ->check(CLI::IsMember(program::precision_names()));
    command
        .add_option(
            "--implementation", job.implementations,
            "Implementations to model, separated by commas (see orrery implementations); their plans are ranked "
            "together. Default: megatron-core,torch-fsdp2 on GPUs, orrery on local and on measured profiles")
        ->delimiter(',');
    add_optimizer_options(command, job);
    add_choice_options(command, job);
    add_space_options(command, job.space);
}

void add_seed_option(CLI::App& command, PlanJob& job) {
    command.add_option("--seed", job.seed, "Seed of weights and synthetic data")
        ->check(CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()))
        ->capture_default_str();
}

void add_threads_option(CLI::App& command, int& threads) {
    command
        .add_option("--threads", threads,
                    "Threads of the search, which do not change its result (default: as many as there are cores)")
        ->check(CLI::Range(1, 1024));
}

void check_together(const PlanJob& job) {
    const auto refuse = [](const std::string& flag, const std::string& value, const std::string& other,
                           const std::string& allowed) {
        throw InputError("command line", flag, value, "only with " + other + " " + allowed);
    };
    if (job.dp_shard > 0 && job.data_parallel == "ddp") {
        refuse("--dp-shard", std::to_string(job.dp_shard), "--data-parallel", "zero1, zero2 or zero3");
    }
    if (!job.reshard.empty() && !job.data_parallel.empty() && job.data_parallel != "zero3") {
        refuse("--reshard-after-forward", job.reshard, "--data-parallel", "zero3");
    }
    if (!job.recompute_parts.empty() && !job.recompute.empty() && job.recompute != "selective") {
        refuse("--recompute-parts", fmt::format("{}", fmt::join(job.recompute_parts, ",")), "--recompute", "selective");
    }
    check_space(job.space, job.schedule, job.data_parallel, job.recompute);
    if (job.post_validation && job.clip_norm == 0 && job.precision != "fp16") {
        refuse("--post-validation", "true", "--clip-norm", "above 0, or with --precision fp16");
    }
}

void check_cuts(const PlanJob& job, const models::ModelSpec& model) {
    const auto refuse = [](const std::string& flag, std::int64_t value, const std::string& allowed) {
        throw InputError("command line", flag, std::to_string(value), allowed);
    };
    if (job.tp > 0 && model.heads % job.tp != 0) {
        refuse("--tp", job.tp, "a divisor of the model's heads, " + std::to_string(model.heads));
    }
    if (job.pp > model.layers + 2) {
        refuse("--pp", job.pp,
               fmt::format("at most {}: one stage for each of the model's {} layers, the embedding and the head",
                           model.layers + 2, model.layers));
    }
}

void check_degrees(const PlanJob& job, const models::ModelSpec& model) {
    check_cuts(job, model);
    const auto refuse = [](const std::string& flag, std::int64_t value, const std::string& allowed) {
        throw InputError("command line", flag, std::to_string(value), allowed);
    };
    const auto given = [](std::int64_t degree) { return std::max<std::int64_t>(1, degree); };
    const std::int64_t ranks = given(job.tp) * given(job.pp) * given(job.dp) * given(job.cp);
    // The search uses context parallelism for shorter sequences only if --cp is given.
    constexpr std::int64_t kShortestCut = 2 * sim::kLeastContextPositions;
    const bool all_given = job.tp > 0 && job.pp > 0 && job.dp > 0 && (job.cp > 0 || job.sequence < kShortestCut);
    if (job.spares && job.devices < ranks) {
        refuse("--gpus-at-most", job.devices,
               "at least " + std::to_string(ranks) + ", the product of the given degrees");
    }
    if (!job.spares && (all_given ? job.devices != ranks : job.devices % ranks != 0)) {
        refuse("--gpus", job.devices,
               (all_given ? "" : "a multiple of ") + std::to_string(ranks) + ", the product of the given degrees");
    }
    const std::int64_t together = given(job.dp) * given(job.micro_batch);
    if (job.global_batch % together != 0) {
        refuse("--global-batch", job.global_batch,
               "a multiple of " + std::to_string(together) + " = dp " + std::to_string(given(job.dp)) +
                   " * micro-batch " + std::to_string(given(job.micro_batch)));
    }
}

std::vector<sim::PlanRequest> requests_of(const PlanJob& job, const models::ModelSpec& model,
                                          const topologies::ClusterSpec& spec) {
    std::vector<std::string> names =
        job.implementations.empty() ? sim::default_implementations(spec) : job.implementations;
    drop_excluded(job.goal, names);
    check_schedule(job, names);
    std::vector<sim::PlanRequest> requests;
    for (const std::string& name : names) requests.push_back(make_request(job, model, spec, name));
    return requests;
}

std::vector<sim::PlanRequest> requests_for_any_size(const PlanJob& job, const models::ModelSpec& model) {
    return requests_of(job, model, topologies::load_cluster(job.cluster, 1));
}

}  // namespace orrery::cli
