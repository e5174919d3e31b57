// orrery whatif: other values for the inputs of a plan.
#include <fmt/format.h>
#include <fmt/ranges.h>

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
#include "cli/point_store.h"
#include "cli/stored_sweep.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json_value.h"
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
    StoreOptions store;
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

/// The same of the edited plan; with a reason if it breaks a rule or no plan fits.
program::SweepPoint point_of(const program::Plan& plan, const EditablePlan& editable,
                             const std::vector<std::string>& paths, const std::vector<std::string>& values,
                             const WhatIfOptions& options) {
    const bool uses_all = plan.parallelism.world_size() == plan.cluster.device_count();
    const auto without_plan = [&](const std::string& reason) {
        return program::SweepPoint{.values = {},
                                   .point = {.devices = plan.parallelism.world_size(),
                                             .global_batch_size = plan.training.global_batch_size,
                                             .reason = reason},
                                   .fits = false};
    };
    try {
        return point_of(editable.with(paths, values), uses_all, options);
    } catch (const InfeasibleError& error) {
        return without_plan(error.what());
    } catch (const InputError& error) {
        return without_plan(error.what());
    }
}

/// All that the results of points follow from but their values.
std::string inputs_of(const EditablePlan& editable, const WhatIfOptions& options) {
    JsonValue json = JsonValue::object();
    json.set("command", JsonValue(options.replans ? "whatif --replan" : "whatif"));
    json.set("build", JsonValue(build_name()));
    if (options.memory_margin_gib) json.set("memory_margin_gib", JsonValue(*options.memory_margin_gib));
    return json.text() + "\n" + editable.text();
}

std::string point_name(std::vector<std::string> paths, const std::vector<std::string>& in_file) {
    for (std::size_t i = 0; i < paths.size(); ++i) paths[i] += "=" + in_file[i];
    std::sort(paths.begin(), paths.end());
    return fmt::format("{}", fmt::join(paths, " "));
}

/// What is to be predicted: the values of each point, those of the base first.
struct Sweep {
    program::InputSweep result;
    std::vector<std::vector<std::string>> values;
};

Sweep sweep_for(const program::Plan& plan, const EditablePlan& editable, const WhatIfOptions& options) {
    Sweep sweep{.result = {.model = plan.model.name,
                           .cluster = plan.cluster.name,
                           .plan = plan.name,
                           .replans = options.replans},
                .values = {}};
    std::vector<InputValues> inputs;
    for (const std::string& text : options.set) {
        const InputValues& input = inputs.emplace_back(input_values(text));
        std::vector<std::string>& paths = sweep.result.paths;
        if (std::count(paths.begin(), paths.end(), input.path) > 0) {
            throw InputError("command line", "--set", input.path, "each path once; its values are separated by commas");
        }
        paths.push_back(input.path);
        sweep.result.base_values.push_back(editable.value(input.path));
    }
    sweep.values = combinations(inputs);
    sweep.values.insert(sweep.values.begin(), sweep.result.base_values);
    sweep.result.points.resize(sweep.values.size() - 1);
    return sweep;
}

/// Returns whether the results are there: not those of a shard.
bool predict_points(const program::Plan& plan, const EditablePlan& editable, const WhatIfOptions& options,
                    Sweep& sweep) {
    program::InputSweep& result = sweep.result;
    SweepToStore to_store{.verb = options.replans ? "planning" : "predicting",
                          .inputs = inputs_of(editable, options),
                          .points = {},
                          .compute = {},
                          .take = {}};
    // Values that cannot be read are refused before anything is simulated; values that break a rule are reported.
    for (const std::vector<std::string>& values : sweep.values) {
        to_store.points.push_back(point_name(result.paths, editable.values_in_file(result.paths, values)));
    }
    to_store.compute = [&](std::size_t i) {
        return program::to_json_text(point_of(plan, editable, result.paths, sweep.values[i], options));
    };
    to_store.take = [&](std::size_t i, const std::string& text) {
        program::SweepPoint& point = i == 0 ? result.base : result.points[i - 1];
        point = program::sweep_point_from_json_text(text, options.store.db);
        point.values = sweep.values[i];
        if (i > 0 && point.point.is_found() && result.base.point.is_found()) {
            point.speed = point.point.tokens_per_s / result.base.point.tokens_per_s;
        }
    };
    return run_sweep(options.store, to_store);
}

int sweep_inputs(const WhatIfOptions& options) {
    check_store(options.store,
                {{"--csv", options.csv}, {"--output", options.output}, {"--json", options.json ? "--json" : ""}});
    check_outputs({{"--csv", options.csv}, {"--output", options.output}, {"--db", options.store.db}},
                  {{"the plan", options.plan}});
    const program::Plan plan = program::read_plan(options.plan);
    const EditablePlan editable(plan);
    Sweep sweep = sweep_for(plan, editable, options);
    if (!predict_points(plan, editable, options, sweep)) return kExitDone;
    const program::InputSweep& result = sweep.result;
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
    add_store_options(*command, options->store);
    command->add_option("--csv", options->csv, "Write the table to this file as CSV");
    command->add_option("--output", options->output, "Write orrery.whatif/1 JSON to this file");
    command->add_flag("--json", options->json, "Print orrery.whatif/1 JSON");
    command->footer(
        "With the best plan for each: orrery whatif examples/llama3-8b-64-h100.plan.json "
        "--set training.sequence_length=4096,8192,16384 --replan\n"
        "Example: orrery whatif examples/llama3-8b-64-h100.plan.json "
        "--set cluster.nic.bandwidth_gb_per_s_per_direction=0.5x,1x,2x --set training.micro_batch_size=1,2");
    command->callback([options, &chosen] {
        chosen = [options] { return on_threads(options->threads, [&] { return sweep_inputs(*options); }); };
    });
}

}  // namespace orrery::cli
