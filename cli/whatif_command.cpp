// orrery whatif: other values for the inputs of a plan.
#include <fmt/format.h>
#include <oneapi/tbb/task_arena.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/parallel.h"
#include "cli/plan_edit.h"
#include "cli/plan_job.h"
#include "core/error.h"
#include "core/file.h"
#include "reports/model_text.h"
#include "reports/sweep_report.h"
#include "sim/planner/one_plan.h"
#include "sim/program/input_sweep.h"

namespace orrery::cli {
namespace {

constexpr std::size_t kMostPoints = 10000;

struct WhatIfOptions {
    std::string plan, csv, output;
    std::vector<std::string> set;
    std::optional<double> memory_margin_gib;
    bool replans = false, json = false;
    int threads = 0;
};

/// All combinations, in the order of the values; those of the last path vary fastest.
std::vector<std::vector<std::string>> combinations(const std::vector<InputValues>& inputs) {
    std::vector<std::vector<std::string>> all{{}};
    for (const InputValues& input : inputs) {
        std::vector<std::vector<std::string>> longer;
        for (const std::vector<std::string>& before : all) {
            for (const std::string& value : input.values) {
                longer.push_back(before);
                longer.back().push_back(value);
            }
        }
        all = std::move(longer);
        if (all.size() > kMostPoints) {
            throw InputError("command line", "--set", std::to_string(all.size()) + " combinations",
                             "at most " + std::to_string(kMostPoints));
        }
    }
    return all;
}

program::PlanResult best_like(const program::Plan& plan, bool uses_all, const WhatIfOptions& options) {
    sim::PlanRequest request = sim::request_like(plan);
    if (uses_all) request.devices = plan.cluster.device_count();
    request.memory_margin_gib = options.memory_margin_gib;
    sim::PlanSearch search = sim::search_plans(request, topologies::Cluster(plan.cluster), 1, 1);
    return std::move(search.results.front());
}

/// `uses_all`: the plan of the file uses all devices of its cluster.
program::SweepPoint point_of(const program::Plan& plan, bool uses_all, const WhatIfOptions& options) {
    const program::PlanResult result =
        options.replans ? best_like(plan, uses_all, options)
                        : sim::predict(plan, topologies::Cluster(plan.cluster), options.memory_margin_gib);
    return {.values = {},
            .point = program::scaling_point(result, result.plan.parallelism.world_size()),
            .fits = result.feasible};
}

int sweep(const WhatIfOptions& options) {
    check_outputs({{"--csv", options.csv}, {"--output", options.output}}, {{"the plan", options.plan}});
    std::vector<InputValues> inputs;
    for (const std::string& text : options.set) inputs.push_back(input_values(text));
    const program::Plan plan = program::read_plan(options.plan);
    const EditablePlan editable(plan);
    const bool uses_all = plan.parallelism.world_size() == plan.cluster.device_count();
    program::InputSweep result{
        .model = plan.model.name, .cluster = plan.cluster.name, .plan = plan.name, .replans = options.replans};
    for (const InputValues& input : inputs) {
        if (std::count(result.paths.begin(), result.paths.end(), input.path) > 0) {
            throw InputError("command line", "--set", input.path, "each path once; its values are separated by commas");
        }
        result.paths.push_back(input.path);
        result.base_values.push_back(editable.value(input.path));
    }
    const std::vector<std::vector<std::string>> all = combinations(inputs);
    // Values that cannot be read are refused before anything is simulated; values that break a rule are reported.
    for (const std::vector<std::string>& values : all) editable.check_values(result.paths, values);
    result.points.resize(all.size());
    in_parallel(options.replans ? "planning" : "predicting", all.size() + 1, [&](std::size_t i) {
        program::SweepPoint& point = i == 0 ? result.base : result.points[i - 1];
        try {
            point = point_of(i == 0 ? plan : editable.with(result.paths, all[i - 1]), uses_all, options);
        } catch (const InfeasibleError& error) {
            point.point.reason = error.what();
        } catch (const InputError& error) {
            if (i == 0) throw;
            point.point.reason = error.what();
        }
        point.values = i == 0 ? result.base_values : all[i - 1];
    });
    for (program::SweepPoint& point : result.points) {
        if (!point.point.is_found() || !result.base.point.is_found()) continue;
        point.speed = point.point.tokens_per_s / result.base.point.tokens_per_s;
    }
    if (!options.csv.empty()) write_file_atomically(options.csv, reports::sweep_csv(result));
    if (!options.output.empty()) write_file_atomically(options.output, program::to_json_text(result));
    if (options.json) {
        print(program::to_json_text(result));
    } else {
        print(fmt::format("{} on {}, {}\n", result.plan, result.cluster,
                          options.replans ? "the best plan for each combination" : "the same plan for all"));
        print(reports::sweep_text(result));
    }
    return kExitDone;
}

}  // namespace

void add_whatif(CLI::App& app, Action& chosen) {
    auto options = std::make_shared<WhatIfOptions>();
    CLI::App* command = app.add_subcommand(
        "whatif", "Predict a plan, or the best plan, for other values of its inputs: bandwidths, sizes, choices");
    command->add_option("plan", options->plan, "Plan file (orrery plan --output)")->required();
    command
        ->add_option(
            "--set", options->set,
            "PATH=VALUE,VALUE,...: keys of the plan file joined by dots, and values or factors (0.75x); may be "
            "repeated, all combinations are predicted")
        ->required()
        ->allow_extra_args(false);
    command->add_flag("--replan", options->replans,
                      "Search for the best plan for each combination, in place of the plan of the file");
    add_memory_margin_option(*command, options->memory_margin_gib);
    add_threads_option(*command, options->threads);
    command->add_option("--csv", options->csv, "Write the table to this file as CSV");
    command->add_option("--output", options->output, "Write orrery.whatif/1 JSON to this file");
    command->add_flag("--json", options->json, "Print orrery.whatif/1 JSON");
    command->footer(
        "With the best plan for each: orrery whatif examples/llama3-8b-64-h100.plan.json "
        "--set training.sequence_length=4096,8192,16384 --replan\n"
        "Example: orrery whatif examples/llama3-8b-64-h100.plan.json "
        "--set cluster.nic.bandwidth_gb_per_s_per_direction=0.5x,1x,2x --set training.micro_batch_size=1,2");
    command->callback([options, &chosen] {
        chosen = [options] {
            tbb::task_arena threads(options->threads == 0 ? tbb::task_arena::automatic : options->threads);
            return threads.execute([&] { return sweep(*options); });
        };
    });
}

}  // namespace orrery::cli
