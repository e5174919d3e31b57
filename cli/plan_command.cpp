#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "cli/commands.h"
#include "cli/strict.h"
#include "core/error.h"
#include "core/file.h"
#include "reports/ranked_plans.h"
#include "sim/planner/planner.h"

namespace orrery::cli {
namespace {

struct PlanOptions {
    std::string model, cluster, implementation = "orrery", precision, output, data = "synthetic";
    std::string schedule, data_parallel, recompute;  // empty: any
    std::int64_t devices = 0, global_batch = 0, sequence = 0, tp = 0, pp = 0, dp = 0, cp = 0, ep = 0, micro_batch = 0;
    std::int64_t seed = 1234;
    std::size_t top = 10;
    bool json = false, strict = false;
};

std::vector<std::string> schedule_names() {
    std::vector<std::string> names;
    names.reserve(program::kScheduleCount);
    for (int i = 0; i < program::kScheduleCount; ++i) names.push_back(name_of(static_cast<program::Schedule>(i)));
    return names;
}

/// Refuses degrees that cannot be, by the flag that asks for them. What remains is for the search to find.
void check_degrees(const PlanOptions& options, const models::ModelSpec& model) {
    const auto refuse = [](const std::string& flag, std::int64_t value, const std::string& allowed) {
        throw InputError("command line", flag, std::to_string(value), allowed);
    };
    if (options.tp > 0 && model.heads % options.tp != 0) {
        refuse("--tp", options.tp, "a divisor of the model's heads, " + std::to_string(model.heads));
    }
    if (options.pp > model.layers) {
        refuse("--pp", options.pp, "at most the model's layers, " + std::to_string(model.layers));
    }
    const auto given = [](std::int64_t degree) { return std::max<std::int64_t>(1, degree); };
    const std::int64_t ranks = given(options.tp) * given(options.pp) * given(options.dp) * given(options.cp);
    // Shorter sequences are not cut unless that is asked for.
    constexpr std::int64_t kShortestCut = 16'384;
    const bool all_given =
        options.tp > 0 && options.pp > 0 && options.dp > 0 && (options.cp > 0 || options.sequence < kShortestCut);
    if (all_given ? options.devices != ranks : options.devices % ranks != 0) {
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

sim::PlanRequest make_request(const PlanOptions& options) {
    sim::PlanRequest request;
    request.model = models::load_model(options.model);
    request.cluster = topologies::load_cluster(options.cluster, options.devices);
    request.implementation = models::load_implementation(options.implementation);
    request.devices = options.devices;
    const bool on_cpu = request.cluster.ranks_may_share_devices();
    const std::string precision = options.precision.empty() ? (on_cpu ? "fp32" : "bf16") : options.precision;
    request.training.sequence_length = options.sequence;
    request.training.global_batch_size = options.global_batch;
    request.rates = program::resolve_rates(request.implementation, request.cluster);
    request.training.precision = program::precision_named(precision, request.implementation);
    request.training.dropout = request.implementation.default_dropout;
    request.training.seed = static_cast<std::uint64_t>(options.seed);
    request.training.data = options.data;
    // On CPU ranks a plan is there to be run, and the executor runs replicas of 1F1B pipelines unless asked for others.
    if (!on_cpu) sim::allow_every_technique(request);
    if (on_cpu && options.cp == 0) request.cp = 1;
    if (!options.schedule.empty()) request.schedules = {program::schedule_named(options.schedule)};
    if (!options.data_parallel.empty()) {
        request.data_parallel = {program::data_parallel_named(options.data_parallel)};
    }
    if (!options.recompute.empty()) request.recompute = {program::recompute_named(options.recompute)};
    request.tp = options.tp;
    request.pp = options.pp;
    request.dp = options.dp;
    if (options.cp != 0) request.cp = options.cp;
    request.ep = options.ep;
    request.micro_batch_size = options.micro_batch;
    const auto chosen = [](std::int64_t given) { return given != 0 ? "flag" : "planner"; };
    const auto named = [](const std::string& given) { return given.empty() ? "planner" : "flag"; };
    request.origins = {{"/model", "flag"},
                       {"/cluster", "flag"},
                       {"/implementation", options.implementation == "orrery" ? "default" : "flag"},
                       {"/parallelism/tp", chosen(options.tp)},
                       {"/parallelism/pp", chosen(options.pp)},
                       {"/parallelism/dp", chosen(options.dp)},
                       {"/parallelism/cp", chosen(options.cp)},
                       {"/parallelism/ep", chosen(options.ep)},
                       {"/parallelism/sequence_parallel", "planner"},
                       {"/parallelism/schedule", named(options.schedule)},
                       {"/parallelism/chunks", "planner"},
                       {"/parallelism/data_parallel", named(options.data_parallel)},
                       {"/parallelism/stage_layers", "planner"},
                       {"/training/memory/recompute", named(options.recompute)},
                       {"/training/memory/recompute_layers", "planner"},
                       {"/training/micro_batch_size", chosen(options.micro_batch)},
                       {"/training/global_batch_size", "flag"},
                       {"/training/sequence_length", "flag"},
                       {"/training/precision", options.precision.empty() ? "default" : "flag"}};
    return request;
}

int run_plan(const PlanOptions& options) {
    check_outputs({{"--output", options.output}});
    const sim::PlanRequest request = make_request(options);
    check_degrees(options, request.model);
    const topologies::Cluster cluster(request.cluster);
    const sim::PlanSearch search = sim::search_plans(request, cluster, options.top);
    if (options.strict) refuse_assumptions(program::lower(search.results.front().plan), "the best plan");
    std::vector<program::PlanResult> ranked = search.results;
    if (!options.output.empty()) {
        write_file_atomically(options.output, program::to_json_text(search.results.front().plan));
    }
    if (options.json) {
        std::erase_if(ranked, [](const program::PlanResult& result) { return !result.feasible; });
        print(reports::ranked_plans_json(ranked));
        return kExitDone;
    }
    print(fmt::format("{} on {} x {}: {} candidates, {} simulated whole\n", request.model.name, options.devices,
                      request.cluster.name, search.considered, search.simulated_exactly));
    print(reports::ranked_plans_text(ranked, options.top));
    if (!options.output.empty()) print(fmt::format("best plan written to {}\n", options.output));
    return kExitDone;
}

}  // namespace

void add_plan(CLI::App& app, Action& chosen) {
    auto options = std::make_shared<PlanOptions>();
    CLI::App* command = app.add_subcommand("plan", "Rank the parallelism plans for a model on a cluster");
    command->add_option("--model", options->model, "Zoo name, or path of a Hugging Face config.json")->required();
    command->add_option("--cluster", options->cluster, "Preset name (orrery clusters), `local`, or a cluster file")
        ->required();
    command->add_option("--gpus,--ranks", options->devices, "Devices (on local: ranks)")
        ->required()
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
    command->add_option("--global-batch", options->global_batch, "Sequences a step")
        ->required()
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
    command->add_option("--seq", options->sequence, "Tokens a sequence")
        ->required()
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
    command->add_option("--precision", options->precision, "Default: bf16 on GPUs, fp32 on local")
        ->check(CLI::IsMember(program::precision_names()));
    command->add_option("--implementation", options->implementation, "Whose behaviour to model")->capture_default_str();
    const auto degree = CLI::Range(std::int64_t{1}, std::int64_t{1} << 20);
    command->add_option("--tp", options->tp, "Only this tensor-parallel degree")->check(degree);
    command->add_option("--pp", options->pp, "Only this pipeline-parallel degree")->check(degree);
    command->add_option("--dp", options->dp, "Only this data-parallel degree")->check(degree);
    command->add_option("--cp", options->cp, "Only this context-parallel degree")->check(degree);
    command->add_option("--ep", options->ep, "Only this expert-parallel degree")->check(degree);
    command->add_option("--micro-batch", options->micro_batch, "Only this micro-batch size")->check(degree);
    command->add_option("--schedule", options->schedule, "Only this pipeline schedule")
        ->check(CLI::IsMember(schedule_names()));
    command->add_option("--data-parallel", options->data_parallel, "Only this kind")
        ->check(CLI::IsMember({"ddp", "zero1", "zero2", "zero3"}));
    command->add_option("--recompute", options->recompute, "Only this recomputation of activations")
        ->check(CLI::IsMember({"none", "selective", "full"}));
    command->add_option("--data", options->data, "`synthetic`, or a text file read as bytes")->capture_default_str();
    command->add_option("--seed", options->seed, "Seed of weights and synthetic data")
        ->check(CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()))
        ->capture_default_str();
    command->add_option("--top", options->top, "How many plans to show")
        ->check(CLI::Range(std::size_t{1}, std::size_t{32}))
        ->capture_default_str();
    command->add_option("--output", options->output, "Write the best plan to this file");
    command->add_flag(
        "--strict", options->strict,
        "Refuse where what is predicted of the best plan rests on rates or on figures of devices and links "
        "that are assumptions");
    command->add_flag("--json", options->json, "Print orrery.plans/1 JSON");
    command->footer(
        "Example: orrery plan --model llama3-70b --cluster dgx-h100 --gpus 512 --global-batch 1024 --seq 8192");
    command->callback([options, &chosen] { chosen = [options] { return run_plan(*options); }; });
}

}  // namespace orrery::cli
