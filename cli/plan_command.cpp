#include <fmt/format.h>
#include <oneapi/tbb/task_arena.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "cli/commands.h"
#include "cli/plan_answers.h"
#include "cli/plan_at_most.h"
#include "cli/plan_audit.h"
#include "cli/plan_goal.h"
#include "cli/plan_search.h"
#include "cli/plan_shortlist.h"
#include "cli/plan_space.h"
#include "cli/progress_line.h"
#include "cli/strict.h"
#include "core/error.h"
#include "core/file.h"
#include "exec/data.h"
#include "reports/model_text.h"
#include "reports/ranked_plans.h"
#include "reports/search_text.h"
#include "reports/summary.h"
#include "reports/table.h"
#include "sim/planner/advise.h"
#include "sim/planner/at_most.h"
#include "sim/planner/planner.h"
#include "sim/program/stage_layout.h"

namespace orrery::cli {
namespace {

struct PlanOptions {
    std::string model, cluster, precision, moments, output, data = "synthetic";
    std::vector<std::string> implementations;                      // empty: by the cluster
    std::string schedule, data_parallel, recompute, stage_layout;  // empty: any
    std::int64_t devices = 0;                                      // with `spares`: at most
    bool spares = false;                                           // plans may leave devices idle
    std::int64_t global_batch = 0, sequence = 0, tp = 0, pp = 0, dp = 0, cp = 0, ep = 0, micro_batch = 0, chunks = 0,
                 dp_shard = 0;
    std::vector<std::string> recompute_parts;  // empty: any
    std::string order, reshard;                // empty: any
    std::int64_t seed = 1234;
    int threads = 0;  // 0: as many as the machine lets this process use
    std::size_t top = 10, prove = 1;
    double clip_norm = 0;
    bool post_validation = false, json = false, strict = false;
    std::optional<double> memory_margin_gib;
    models::ModelParts parts = models::ModelParts::whole;
    PlanSpace space;
    PlanGoal goal;
    std::size_t audit = 0;  // excluded plans to simulate
    PlanAnswerOptions answers;
};

/// Plans that do not fit whose smallest fix the JSON names: those that are nearest to fitting.
constexpr std::size_t kMostFixes = 3;

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

/// Refuses flags that exclude each other; they would be ignored.
void check_together(const PlanOptions& options) {
    const auto refuse = [](const std::string& flag, const std::string& value, const std::string& other,
                           const std::string& allowed) {
        throw InputError("command line", flag, value, "only with " + other + " " + allowed);
    };
    if (options.dp_shard > 0 && options.data_parallel == "ddp") {
        refuse("--dp-shard", std::to_string(options.dp_shard), "--data-parallel", "zero1, zero2 or zero3");
    }
    if (!options.reshard.empty() && !options.data_parallel.empty() && options.data_parallel != "zero3") {
        refuse("--reshard-after-forward", options.reshard, "--data-parallel", "zero3");
    }
    if (!options.recompute_parts.empty() && !options.recompute.empty() && options.recompute != "selective") {
        refuse("--recompute-parts", fmt::format("{}", fmt::join(options.recompute_parts, ",")), "--recompute",
               "selective");
    }
    check_space(options.space, options.schedule, options.data_parallel, options.recompute);
    if (options.post_validation && options.clip_norm == 0 && options.precision != "fp16") {
        refuse("--post-validation", "true", "--clip-norm", "above 0, or with --precision fp16");
    }
}

/// Refuses impossible degrees, naming the flag. Everything else is left to the search.
void check_degrees(const PlanOptions& options, const models::ModelSpec& model) {
    const auto refuse = [](const std::string& flag, std::int64_t value, const std::string& allowed) {
        throw InputError("command line", flag, std::to_string(value), allowed);
    };
    if (options.tp > 0 && model.heads % options.tp != 0) {
        refuse("--tp", options.tp, "a divisor of the model's heads, " + std::to_string(model.heads));
    }
    if (options.pp > model.layers + 2) {
        refuse("--pp", options.pp,
               fmt::format("at most {}: one stage for each of the model's {} layers, the embedding and the head",
                           model.layers + 2, model.layers));
    }
    const auto given = [](std::int64_t degree) { return std::max<std::int64_t>(1, degree); };
    const std::int64_t ranks = given(options.tp) * given(options.pp) * given(options.dp) * given(options.cp);
    // The search uses context parallelism for shorter sequences only if --cp is given.
    constexpr std::int64_t kShortestCut = 2 * sim::kLeastContextPositions;
    const bool all_given =
        options.tp > 0 && options.pp > 0 && options.dp > 0 && (options.cp > 0 || options.sequence < kShortestCut);
    if (options.spares && options.devices < ranks) {
        refuse("--gpus-at-most", options.devices,
               "at least " + std::to_string(ranks) + ", the product of the given degrees");
    }
    if (!options.spares && (all_given ? options.devices != ranks : options.devices % ranks != 0)) {
        refuse("--gpus", options.devices,
               (all_given ? "" : "a multiple of ") + std::to_string(ranks) + ", the product of the given degrees");
    }
    const std::int64_t together = given(options.dp) * given(options.micro_batch);
    if (options.global_batch % together != 0) {
        refuse("--global-batch", options.global_batch,
               "a multiple of " + std::to_string(together) + " = dp " + std::to_string(given(options.dp)) +
                   " * micro-batch " + std::to_string(given(options.micro_batch)));
    }
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
std::map<std::string, std::string> origins_of(const PlanOptions& options) {
    std::map<std::string, std::string> origins = origins_of(options.space);
    if (!options.moments.empty()) origins["/training/precision/moments"] = "flag";
    if (options.clip_norm > 0) origins["/training/optimizer/clip_norm"] = "flag";
    if (options.post_validation) origins["/training/optimizer/post_validation"] = "flag";
    const auto chosen = [](std::int64_t given) { return given != 0 ? "flag" : "planner"; };
    const auto named = [](const std::string& given) { return given.empty() ? "planner" : "flag"; };
    origins.merge(std::map<std::string, std::string>{
        {"/model", "flag"},
        {"/cluster", "flag"},
        {"/implementation", options.implementations.empty() ? "default" : "flag"},
        {"/parallelism/tp", chosen(options.tp)},
        {"/parallelism/pp", chosen(options.pp)},
        {"/parallelism/dp", chosen(options.dp)},
        {"/parallelism/cp", chosen(options.cp)},
        {"/parallelism/ep", chosen(options.ep)},
        {"/parallelism/sequence_parallel", "planner"},
        {"/parallelism/schedule", named(options.schedule)},
        {"/parallelism/chunks", chosen(options.chunks)},
        {"/parallelism/data_parallel", named(options.data_parallel)},
        {"/parallelism/dp_shard", chosen(options.dp_shard)},
        {"/parallelism/reshard_after_forward", named(options.reshard)},
        {"/parallelism/order", named(options.order)},
        {"/parallelism/stage_layers", named(options.stage_layout)},
        {"/training/memory/recompute", named(options.recompute)},
        {"/training/memory/recompute_parts", options.recompute_parts.empty() ? "planner" : "flag"},
        {"/training/memory/recompute_layers", "planner"},
        {"/training/micro_batch_size", chosen(options.micro_batch)},
        {"/training/global_batch_size", "flag"},
        {"/training/sequence_length", "flag"},
        {"/training/precision", options.precision.empty() ? "default" : "flag"}});
    return origins;
}

sim::PlanRequest make_request(const PlanOptions& options, const models::ModelSpec& model,
                              const topologies::ClusterSpec& cluster, const std::string& implementation) {
    sim::PlanRequest request;
    request.model = model;
    request.cluster = cluster;
    request.implementation = models::load_implementation(implementation);
    request.devices = options.devices;
    request.memory_margin_gib = options.memory_margin_gib;
    const bool on_cpu = request.cluster.ranks_may_share_devices();
    const std::string precision =
        options.precision.empty() ? default_precision(on_cpu, request.implementation.supports) : options.precision;
    request.training.sequence_length = options.sequence;
    request.training.global_batch_size = options.global_batch;
    request.rates = program::resolve_rates(request.implementation, request.cluster);
    request.training.precision = program::precision_named(precision, request.implementation);
    if (!options.moments.empty()) request.training.precision.moments = *dtype_named(options.moments);
    request.training.optimizer.clip_norm = options.clip_norm;
    request.training.optimizer.post_validation = options.post_validation;
    request.training.dropout = request.implementation.default_dropout;
    request.training.seed = static_cast<std::uint64_t>(options.seed);
    request.training.data = options.data;
    // Plans for CPU ranks are restricted to what the executor runs; the default request has only 1F1B pipelines and
    // ddp.
    if (!on_cpu) sim::allow_every_technique(request);
    if (on_cpu && options.cp == 0) request.cp = 1;
    apply_space(options.space, request);
    if (!options.schedule.empty()) request.schedules = {program::schedule_named(options.schedule)};
    if (!options.data_parallel.empty()) {
        request.data_parallel = {program::data_parallel_named(options.data_parallel)};
    }
    if (!options.recompute.empty()) request.recompute = {program::recompute_named(options.recompute)};
    request.observer = search_line();
    request.tp = options.tp;
    request.pp = options.pp;
    request.dp = options.dp;
    if (options.cp != 0) request.cp = options.cp;
    request.ep = options.ep;
    if (!options.stage_layout.empty()) {
        request.stage_layers = program::stage_layout_named(options.stage_layout, "command line", "--stage-layout");
    }
    request.micro_batch_size = options.micro_batch;
    request.chunks = options.chunks;
    request.dp_shard = options.dp_shard;
    if (!options.reshard.empty()) {
        request.reshard_after_forward = options.reshard == "true";
        request.data_parallel = {program::DataParallel::zero3};  // the only kind that gathers parameters
    }
    if (!options.order.empty()) request.pp_before_dp = options.order == order_names().back();
    if (!options.recompute_parts.empty()) {
        request.training.memory.recompute_parts = options.recompute_parts;
        request.recompute = {program::Recompute::selective};
    }
    request.excluded = exclusions_of(options.goal);
    request.max_memory_bytes = max_memory_bytes(
        options.goal, {.cluster = cluster, .parallelism = {.dp = options.devices}, .training = request.training},
        options.memory_margin_gib);
    request.origins = origins_of(options);
    return request;
}

/// Throws InputError if none of the implementations supports the requested pipeline schedule.
void check_schedule(const PlanOptions& options, const std::vector<std::string>& implementations) {
    if (options.schedule.empty()) return;
    std::set<std::string> known;
    for (const std::string& name : implementations) {
        const models::Support supports = models::load_implementation(name).supports;
        // If nothing is stated, nothing is refused.
        if (supports.source.empty() || models::Support::lists(supports.schedules, options.schedule)) return;
        known.insert(supports.schedules.begin(), supports.schedules.end());
    }
    throw InputError("command line", "--schedule", options.schedule,
                     known.empty()
                         ? fmt::format("none, since {} has no pipelines", fmt::join(implementations, ", "))
                         : fmt::format("{}, which {} has", fmt::join(known, ", "), fmt::join(implementations, ", ")));
}

/// A request for each implementation to search.
std::vector<sim::PlanRequest> requests_of(const PlanOptions& options, const models::ModelSpec& model,
                                          const topologies::ClusterSpec& spec) {
    std::vector<std::string> names =
        options.implementations.empty() ? sim::default_implementations(spec) : options.implementations;
    drop_excluded(options.goal, names);
    check_schedule(options, names);
    std::vector<sim::PlanRequest> requests;
    for (const std::string& name : names) requests.push_back(make_request(options, model, spec, name));
    return requests;
}

/// The same command's requests for other numbers of devices.
PlanCase case_of(const PlanOptions& options, const models::ModelSpec& model) {
    const auto requests = [options, model](std::int64_t devices) {
        PlanOptions sized = options;
        sized.devices = devices;
        return requests_of(sized, model, topologies::load_cluster(options.cluster, devices));
    };
    return {.requests = requests, .devices = options.devices};
}

/// The least memory of any plan of the requests.
sim::LeastMemory least_memory_of(const std::vector<sim::PlanRequest>& requests, const topologies::Cluster& cluster) {
    sim::LeastMemory least;
    for (const sim::PlanRequest& request : requests) {
        try {
            least.merge(sim::least_memory_of(request, cluster));
        } catch (const InputError&) {
            continue;  // the search says why this implementation has no plan
        }
    }
    return least;
}

/// Numbers of plans.
struct Wanted {
    std::size_t keep = 1, prove = 1;
};

/// sim::search_plans of each request. `max_memory_bytes`: a further limit; 0: none.
sim::PlanSearch search_all(const std::vector<sim::PlanRequest>& requests, const topologies::Cluster& cluster,
                           std::int64_t max_memory_bytes, const Wanted& wanted, std::vector<std::string>& notes) {
    const auto search = [&](const sim::PlanRequest& request, std::span<const double> rivals) {
        sim::PlanRequest limited = request;
        if (max_memory_bytes > 0 && (request.max_memory_bytes == 0 || max_memory_bytes < request.max_memory_bytes)) {
            limited.max_memory_bytes = max_memory_bytes;
        }
        return sim::search_plans(limited, cluster, wanted.keep, wanted.prove, rivals);
    };
    return search_each(requests, wanted.keep, search, notes);
}

/// The requests for a cluster of any size.
std::vector<sim::PlanRequest> requests_for_any_size(const PlanOptions& options, const models::ModelSpec& model) {
    return requests_of(options, model, topologies::load_cluster(options.cluster, 1));
}

/// --gpus-at-most.
int run_with_spares(const PlanOptions& options, const models::ModelSpec& model) {
    const PlanAnswerOptions& answers = options.answers;
    const auto refuse_with = [&](bool given, const std::string& other) {
        if (!given) return;
        throw InputError("command line", "--gpus-at-most", std::to_string(options.devices),
                         "--gpus with " + other + ", which is about one number of devices");
    };
    refuse_with(options.goal.pareto, "--pareto");
    refuse_with(options.goal.objective != "time", "--objective " + options.goal.objective);
    refuse_with(answers.explain, "--explain");
    refuse_with(answers.guide, "--guide");
    refuse_with(answers.shortlist > 0, "--shortlist");
    refuse_with(options.audit > 0, "--audit");
    const std::vector<sim::PlanRequest> requests = requests_for_any_size(options, model);
    std::vector<std::string> notes;
    const auto search_any = [&](const sim::PlanRequest& request, std::span<const double> rivals) {
        return sim::search_at_most(request, options.top, options.prove, rivals);
    };
    sim::PlanSearch search = search_each(requests, options.top, search_any, notes);
    sim::compare_with_first(search.results);
    const program::Plan& best = search.results.front().plan;
    program::SearchSummary summary = sim::summary_of(search);
    if (options.strict) refuse_assumptions(program::lower(best), "the best plan");
    if (!options.output.empty()) write_file_atomically(options.output, program::to_json_text(best));
    if (options.json) {
        for (const std::string& note : notes) say("orrery: without " + note + "\n");
        print(reports::ranked_plans_json(search.results, summary));
        return kExitDone;
    }
    print(fmt::format("{} ({}) on {}, at most {} {} ({} a node): {}\n", model.name, reports::parameters_text(model),
                      best.cluster.name, reports::format_integer(options.devices), best.cluster.device.name,
                      best.cluster.devices_per_node, reports::search_counts_text(summary.counts)));
    print(reports::left_out_text(model, options.sequence));
    for (const std::string& note : notes) print("without " + note + "\n");
    print(reports::ranked_plans_text(search.results, options.top));
    summary.spaces.clear();  // one for each number of devices: too long a text
    print(reports::proof_text(search.results, summary));
    print(spares_text(search, options.devices));
    if (!options.output.empty()) print(fmt::format("best plan written to {}\n", options.output));
    return kExitDone;
}

/// The preset or file, for the number of devices asked for.
topologies::ClusterSpec cluster_of(const PlanOptions& options, const models::ModelSpec& model) {
    try {
        return topologies::load_cluster(options.cluster, options.devices);
    } catch (const InputError&) {
        refuse_count(requests_for_any_size(options, model), options.devices, std::current_exception());
    }
}

int find_plans(const PlanOptions& options) {
    check_plan_answers(options.answers);
    check_outputs({{"--output", options.output}},
                  {{"--model", options.model}, {"--cluster", options.cluster}, {"--data", options.data}});
    const models::ModelSpec model = models::load_model(options.model, options.parts);
    check_degrees(options, model);
    check_together(options);
    check_goal(options.goal, options.top, options.prove);
    if (options.prove > options.top) {
        throw InputError("command line", "--prove-top", std::to_string(options.prove),
                         "at most --top, " + std::to_string(options.top));
    }
    if (options.data != "synthetic") {  // read it to find errors before the search
        (void)exec::TokenSource(options.data, static_cast<std::uint64_t>(options.seed), model.vocab, options.sequence);
    }
    if (options.strict) refuse_left_out(model, options.model);
    if (options.spares) return run_with_spares(options, model);
    const topologies::ClusterSpec spec = cluster_of(options, model);
    const topologies::Cluster cluster(spec);
    const std::vector<sim::PlanRequest> requests = requests_of(options, model, spec);
    if (options.audit > 0) {
        return audit_plans(requests, cluster, options.top, options.audit, static_cast<std::uint64_t>(options.seed));
    }
    std::vector<std::string> notes;
    const PlanCase job = case_of(options, model);
    const auto search = [&](std::int64_t max_memory_bytes, std::size_t keep) {
        std::vector<std::string> at_limit;  // that an implementation has no plan within a lower limit is no news
        return search_all(requests, cluster, max_memory_bytes, {keep, std::min(keep, options.prove)},
                          max_memory_bytes == 0 ? notes : at_limit);
    };
    const sim::ObjectiveSearch found = [&] {
        try {
            return search_for(options.goal, options.top, search, [&] { return least_memory_of(requests, cluster); });
        } catch (const sim::TooSlowError&) {
            throw;  // what does not fit would not answer it
        } catch (const InfeasibleError& nothing) {
            answer_nothing_fits(options.answers, job, nothing, options.json);
        } catch (const InputError&) {
            refuse_count(requests_for_any_size(options, model), options.devices, std::current_exception());
        }
    }();
    std::vector<program::PlanResult> ranked = found.results;
    if (options.strict) refuse_assumptions(program::lower(ranked.front().plan), "the best plan");
    if (!options.output.empty()) {
        write_file_atomically(options.output, program::to_json_text(ranked.front().plan));
    }
    if (options.json) {
        for (const std::string& note : notes) say("orrery: without " + note + "\n");
        if (answer(options.answers, job, ranked, options.json)) return kExitDone;
        sim::add_fixes(ranked, requests, kMostFixes);
        print(reports::ranked_plans_json(ranked, found.summary));
        return kExitDone;
    }
    print(fmt::format("{} ({}) on {}: {}\n", model.name, reports::parameters_text(model), reports::size_text(spec),
                      reports::search_counts_text(found.summary.counts)));
    print(reports::left_out_text(model, options.sequence));
    for (const std::string& note : notes) print("without " + note + "\n");
    print(reports::ranked_plans_text(ranked, options.top));
    print(reports::proof_text(ranked, found.summary));
    if (!options.output.empty()) print(fmt::format("best plan written to {}\n", options.output));
    (void)answer(options.answers, job, ranked, options.json);
    return kExitDone;
}

/// Options that fix what the search would choose.
void add_choice_options(CLI::App& command, PlanOptions& options) {
    const auto degree = CLI::Range(std::int64_t{1}, std::int64_t{1} << 20);
    command.add_option("--tp", options.tp, "Only this tensor-parallel degree")->check(degree);
    command.add_option("--pp", options.pp, "Only this pipeline-parallel degree")->check(degree);
    command.add_option("--dp", options.dp, "Only this data-parallel degree")->check(degree);
    command.add_option("--cp", options.cp, "Only this context-parallel degree")->check(degree);
    command.add_option("--ep", options.ep, "Only this expert-parallel degree")->check(degree);
    command.add_option("--micro-batch", options.micro_batch, "Only this micro-batch size")->check(degree);
    command.add_option("--schedule", options.schedule, "Only this pipeline schedule")
        ->check(CLI::IsMember(schedule_names()));
    command.add_option(
        "--stage-layout", options.stage_layout,
        "Only these blocks on each virtual stage, as Megatron writes them: E embedding, t block, L head, "
        "| between stages, *n and (...)*n repeat; for example Et*3|(t*4|)*6t*3L");
    command.add_option("--data-parallel", options.data_parallel, "Only this kind of data parallelism")
        ->check(CLI::IsMember({"ddp", "zero1", "zero2", "zero3"}));
    command.add_option("--recompute", options.recompute, "Only this kind of activation recomputation")
        ->check(CLI::IsMember({"none", "selective", "full"}));
    command.add_option("--chunks", options.chunks, "Only this number of model chunks of a pipeline rank")
        ->check(degree);
    command
        .add_option("--dp-shard", options.dp_shard,
                    "Only ZeRO with shards over this many data-parallel ranks; the sets of shards are replicas (HSDP)")
        ->check(CLI::Range(std::int64_t{2}, std::int64_t{1} << 20));
    command
        .add_option("--reshard-after-forward", options.reshard,
                    "Only zero3 that frees the gathered parameters after the forward pass (true) or keeps them (false)")
        ->check(CLI::IsMember({"true", "false"}));
    command.add_option("--order", options.order, "Only this order of the mesh's axes, the fastest-varying first")
        ->check(CLI::IsMember(order_names()));
    command
        .add_option("--recompute-parts", options.recompute_parts,
                    "Only selective recomputation of these parts of a block, separated by commas")
        ->delimiter(',')
        ->check(CLI::IsMember(part_names()));
}

/// Options of the optimizer, which the search takes as given.
void add_optimizer_options(CLI::App& command, PlanOptions& options) {
    command
        .add_option("--moments", options.moments,
                    "Stored type of AdamW's first and second moments: fp32 (default) or bf16. Master weights stay fp32")
        ->check(CLI::IsMember(program::moment_types()));
    command.add_option("--clip-norm", options.clip_norm, "Clip gradients to this norm; 0: no clipping")
        ->check(CLI::Range(0.0, 1e6))
        ->capture_default_str();
    command.add_flag("--post-validation", options.post_validation,
                     "Update each stage with its own part of the gradient norm, and validate the update under the next "
                     "step's forward passes (needs --clip-norm or fp16)");
}

/// What is planned for. Returns the options that a search needs.
std::vector<CLI::Option*> add_job_options(CLI::App& command, const std::shared_ptr<PlanOptions>& options) {
    CLI::Option* model =
        command.add_option("--model", options->model, "Zoo name, or path of a Hugging Face config.json")->required();
    add_text_only_option(command, options->parts);
    CLI::Option* cluster =
        command.add_option("--cluster", options->cluster, "Preset name (orrery clusters), `local`, or a cluster file")
            ->required();
    CLI::Option* devices = command.add_option("--gpus,--ranks", options->devices, "Devices (on local: ranks)")
                               ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
    command
        .add_option_function<std::int64_t>(
            "--gpus-at-most,--ranks-at-most",
            [options](std::int64_t most) {
                options->devices = most;
                options->spares = true;
            },
            "In place of --gpus: the best plans on at most this many devices; those left idle are spares")
        ->excludes("--gpus")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
    CLI::Option* batch = command.add_option("--global-batch", options->global_batch, "Sequences a step")
                             ->required()
                             ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
    CLI::Option* sequence = command.add_option("--seq", options->sequence, "Tokens a sequence")
                                ->required()
                                ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
    return {model, cluster, devices, batch, sequence};
}

int run_plan(const PlanOptions& options) {
    if (!options.answers.pick.empty()) {
        return pick_plan(options.answers.pick, options.answers.output_dir, options.output, options.json);
    }
    tbb::task_arena threads(options.threads == 0 ? tbb::task_arena::automatic : options.threads);
    return threads.execute([&] { return find_plans(options); });
}

}  // namespace

void add_plan(CLI::App& app, Action& chosen) {
    auto options = std::make_shared<PlanOptions>();
    CLI::App* command = app.add_subcommand("plan", "Rank the parallelism plans for a model on a cluster");
    const std::vector<CLI::Option*> required = add_job_options(*command, options);
    command
        ->add_option("--precision", options->precision,
                     "Default: bf16 on GPUs (fp16 if the implementation has no bf16), fp32 on local")
        ->check(CLI::IsMember(program::precision_names()));
    command
        ->add_option(
            "--implementation", options->implementations,
            "Implementations to model, separated by commas (see orrery implementations); their plans are ranked "
            "together. Default: megatron-core,torch-fsdp2 on GPUs, orrery on local and on measured profiles")
        ->delimiter(',');
    add_optimizer_options(*command, *options);
    add_choice_options(*command, *options);
    add_space_options(*command, options->space);
    add_goal_options(*command, options->goal);
    command
        ->add_option(
            "--audit", options->audit,
            "Check the search instead of printing plans: simulate this many of the plans that each "
            "implementation's search excluded, drawn with --seed; exit code 1 if one beats rank 1 or its bound")
        ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 24));
    command->add_option("--data", options->data, "`synthetic`, or a text file whose bytes are the tokens")
        ->capture_default_str();
    command->add_option("--seed", options->seed, "Seed of weights and synthetic data")
        ->check(CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()))
        ->capture_default_str();
    command
        ->add_option("--threads", options->threads,
                     "Threads of the search, which do not change its result (default: as many as there are cores)")
        ->check(CLI::Range(1, 1024));
    command->add_option("--top", options->top, "Number of plans to show")
        ->check(CLI::Range(std::size_t{1}, std::size_t{32}))
        ->capture_default_str();
    command
        ->add_option("--prove-top", options->prove,
                     "Number of plans shown that are proven to be the best; the others are the best of those simulated")
        ->check(CLI::Range(std::size_t{1}, std::size_t{32}))
        ->capture_default_str();
    add_memory_margin_option(*command, options->memory_margin_gib);
    command->add_option("--output", options->output, "Write the best plan to this file");
    command->add_flag(
        "--strict", options->strict,
        "Refuse a best plan whose prediction rests on rates or on figures of devices and links that are assumptions");
    command->add_flag("--json", options->json,
                      "Print orrery.plans/2 JSON; with --explain and --guide orrery.plan_answers/1, with --pick "
                      "orrery.pick/1");
    add_plan_answer_options(*command, options->answers, required);
    command->footer(
        "Least memory of plans as fast as the best: orrery plan --model llama3-8b --cluster dgx-h100 --gpus 64 "
        "--global-batch 128 --seq 8192 --objective memory --max-step-time 5%\n"
        "Front of time and memory: orrery plan --model llama3-8b --cluster dgx-h100 --gpus 64 --global-batch 128 "
        "--seq 8192 --pareto --exclude zero3 --exclude tp=8\n"
        "What limits it: orrery plan --model llama3-8b --cluster dgx-h100 --gpus 64 --global-batch 128 --seq 8192 "
        "--explain\n"
        "Rules of thumb: orrery plan --model llama3-8b --cluster dgx-h100 --gpus 64 --global-batch 128 --seq 8192 "
        "--guide\n"
        "To measure: orrery plan --model gpt2 --cluster dgx-h100 --gpus 8 --global-batch 64 --seq 1024 --shortlist 3 "
        "--output-dir gpt2.shortlist\n"
        "Example: orrery plan --model llama3-70b --cluster dgx-h100 --gpus 512 --global-batch 1024 --seq 8192");
    command->callback([options, &chosen] {
        if (options->devices == 0 && options->answers.pick.empty())
            throw CLI::RequiredError("--gpus or --gpus-at-most");
        chosen = [options] { return run_plan(*options); };
    });
}

}  // namespace orrery::cli
