// orrery scale: the best plan for each of several numbers of devices.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/best_plan.h"
#include "cli/commands.h"
#include "cli/cost_options.h"
#include "cli/device_counts.h"
#include "cli/parallel.h"
#include "cli/plan_job.h"
#include "cli/point_store.h"
#include "cli/stored_sweep.h"
#include "cli/technique_curves.h"
#include "core/error.h"
#include "core/file.h"
#include "reports/model_text.h"
#include "reports/scaling_report.h"
#include "reports/technique_report.h"
#include "sim/program/scaling_curve.h"
#include "sim/program/technique_curves.h"

namespace orrery::cli {
namespace {

struct ScaleOptions : PlanJob {
    std::string counts, mode = "strong", csv, output;
    std::int64_t batch_per_device = 0;
    bool fixed_plan = false, by_technique = false, json = false;
    int threads = 0;
    StoreOptions store;
    std::string given;  // options_given
    CostOptions costs;
    [[nodiscard]] bool is_weak() const { return mode == "weak"; }
    [[nodiscard]] program::ScalingMode scaling_mode() const {
        return is_weak() ? program::ScalingMode::weak : program::ScalingMode::strong;
    }
    [[nodiscard]] std::int64_t batch() const { return is_weak() ? batch_per_device : global_batch; }
};

void check_batch(const ScaleOptions& options) {
    const auto refuse = [&](const char* option, std::int64_t value, const std::string& allowed) {
        throw InputError("command line", option, std::to_string(value), allowed);
    };
    if (options.is_weak() && options.global_batch > 0) {
        refuse("--global-batch", options.global_batch, "only with --mode strong; --mode weak needs --batch-per-gpu");
    }
    if (!options.is_weak() && options.batch_per_device > 0) {
        refuse("--batch-per-gpu", options.batch_per_device,
               "only with --mode weak; --mode strong needs --global-batch");
    }
    check_store(options.store,
                {{"--csv", options.csv}, {"--output", options.output}, {"--json", options.json ? "--json" : ""}});
    if (options.store.db.empty()) return;
    if (options.fixed_plan) {
        throw InputError("command line", "--db", options.store.db, "not with --fixed-plan, which searches only once");
    }
    if (options.by_technique) throw InputError("command line", "--db", options.store.db, "not with --by-technique");
}

PlanJob job_at(const ScaleOptions& options, std::int64_t devices) {
    PlanJob job = options;
    job.devices = devices;
    if (options.is_weak()) job.global_batch = options.batch_per_device * devices;
    return job;
}

/// What was found for a number of devices.
struct Found {
    program::ScalingPoint point;
    std::optional<program::Plan> plan;
};

Found find(const PlanJob& job, const models::ModelSpec& model, const std::optional<program::Plan>& only) {
    try {
        BestPlan best = best_plan(job, model, only);
        Found found{program::scaling_point(best.result, job.devices), std::move(best.result.plan)};
        found.point.considered = best.counts.considered;
        found.point.simulated = best.counts.simulated;
        return found;
    } catch (const InfeasibleError& error) {
        return {{.devices = job.devices, .global_batch_size = job.global_batch, .reason = error.what()}, {}};
    } catch (const InputError& error) {
        return {{.devices = job.devices, .global_batch_size = job.global_batch, .reason = error.what()}, {}};
    }
}

/// All that the results follow from but the number of devices.
std::string inputs_of(const ScaleOptions& options, const models::ModelSpec& model,
                      const topologies::ClusterSpec& of_one) {
    std::string inputs = fmt::format("scale, build {}\n{}", build_name(), options.given);
    for (const sim::PlanRequest& request : requests_of(job_at(options, 1), model, of_one)) {
        inputs += models::to_json_text(request.implementation);
    }
    return inputs + models::to_json_text(model) + topologies::to_json_text(of_one);
}

/// The best plan of each number of devices, or nothing: --shard.
std::optional<std::vector<program::ScalingPoint>> best_points(const ScaleOptions& options,
                                                              const models::ModelSpec& model,
                                                              const topologies::ClusterSpec& of_one,
                                                              const std::vector<std::int64_t>& counts) {
    std::vector<program::ScalingPoint> points(counts.size());
    SweepToStore sweep{
        .verb = "planning", .inputs = inputs_of(options, model, of_one), .points = {}, .compute = {}, .take = {}};
    for (const std::int64_t devices : counts) sweep.points.push_back(std::to_string(devices));
    sweep.compute = [&](std::size_t i) {
        return program::to_json_text(find(job_at(options, counts[i]), model, {}).point);
    };
    sweep.take = [&](std::size_t i, const std::string& text) {
        points[i] = program::scaling_point_from_json_text(text, options.store.db);
    };
    if (!run_sweep(options.store, sweep)) return {};
    return points;
}

/// The plan of the first number that has one, with more replicas for the others.
std::vector<program::ScalingPoint> points_of_one_shape(const ScaleOptions& options, const models::ModelSpec& model,
                                                       const std::vector<std::int64_t>& counts) {
    std::vector<program::ScalingPoint> points(counts.size());
    std::size_t first = 0;
    std::optional<program::Plan> shape;
    for (; first < counts.size() && !shape; ++first) {
        Found found = find(job_at(options, counts[first]), model, {});
        points[first] = std::move(found.point);
        shape = std::move(found.plan);
    }
    in_parallel("planning", counts.size() - first, [&](std::size_t i) {
        points[first + i] = find(job_at(options, counts[first + i]), model, shape).point;
    });
    return points;
}

void print_heading(const ScaleOptions& options, const models::ModelSpec& model, const std::string& cluster,
                   const std::string& what) {
    print(fmt::format("{} ({}) on {}, {}{} scaling, {} sequences a {}\n", model.name, reports::parameters_text(model),
                      cluster, what, options.mode, options.batch(), options.is_weak() ? "device" : "step"));
    print(reports::left_out_text(model, options.sequence));
}

int scale_by_technique(const ScaleOptions& options, const models::ModelSpec& model,
                       const topologies::ClusterSpec& of_one, const std::vector<std::int64_t>& counts) {
    check_techniques(options);
    const program::TechniqueCurves curves = technique_curves(options, model, of_one,
                                                             {.counts = counts,
                                                              .mode = options.scaling_mode(),
                                                              .batch = options.batch(),
                                                              .figures = cost_figures_of(options.costs, of_one)});
    if (!options.csv.empty()) write_file_atomically(options.csv, reports::techniques_csv(curves));
    if (!options.output.empty()) write_file_atomically(options.output, program::to_json_text(curves));
    if (options.json) {
        print(program::to_json_text(curves));
    } else {
        print_heading(options, model, curves.cluster,
                      fmt::format("each technique alone ({}), ", fmt::join(curves.implementations, ", ")));
        print(reports::techniques_text(curves));
    }
    return curves.base_devices == 0 ? kExitInfeasible : kExitDone;
}

int scale(const ScaleOptions& options) {
    check_batch(options);
    check_outputs({{"--csv", options.csv}, {"--output", options.output}, {"--db", options.store.db}},
                  {{"--model", options.model},
                   {"--cluster", options.cluster},
                   {"--catalogue", options.costs.catalogue},
                   {"--price-csv", options.costs.price_csv}});
    const std::vector<std::int64_t> counts = device_counts(options.counts, "--gpus");
    const models::ModelSpec model = models::load_model(options.model, options.parts);
    check_together(options);
    check_cuts(options, model);
    const topologies::ClusterSpec of_one = topologies::load_cluster(options.cluster, 1);
    if (options.by_technique) return scale_by_technique(options, model, of_one, counts);
    // Requests that cannot be made are refused before any search.
    std::vector<std::string> implementations;
    for (const sim::PlanRequest& request : requests_of(job_at(options, 1), model, of_one)) {
        implementations.push_back(request.implementation.name);
    }
    std::optional<std::vector<program::ScalingPoint>> points =
        options.fixed_plan ? points_of_one_shape(options, model, counts) : best_points(options, model, of_one, counts);
    if (!points) return kExitDone;
    program::ScalingCurve curve{.model = model.name,
                                .cluster = of_one.name,
                                .devices_per_node = of_one.devices_per_node,
                                .implementations = std::move(implementations),
                                .mode = options.scaling_mode(),
                                .is_fixed_plan = options.fixed_plan,
                                .sequence_length = options.sequence,
                                .batch = options.batch(),
                                .points = std::move(*points),
                                .figures = cost_figures_of(options.costs, of_one)};
    if (!options.fixed_plan) program::leave_idle(curve);
    program::measure_scaling(curve);
    if (!options.csv.empty()) write_file_atomically(options.csv, reports::scaling_csv(curve));
    if (!options.output.empty()) write_file_atomically(options.output, program::to_json_text(curve));
    if (options.json) {
        print(program::to_json_text(curve));
    } else {
        print_heading(options, model, curve.cluster, "");
        print(reports::scaling_text(curve));
    }
    return curve.knee_devices == 0 ? kExitInfeasible : kExitDone;
}

}  // namespace

void add_scale(CLI::App& app, Action& chosen) {
    auto options = std::make_shared<ScaleOptions>();
    CLI::App* command =
        app.add_subcommand("scale", "Find the best plan for each of several numbers of devices, and how they scale");
    (void)add_model_options(*command, *options);
    CLI::Option* counts = command
                              ->add_option("--gpus,--ranks", options->counts,
                                           "Numbers of devices: 64,128,1000, or 64..4096 for 64, 128 ... 4096")
                              ->required();
    command
        ->add_option("--mode", options->mode,
                     "strong: all numbers train the same --global-batch; weak: --batch-per-gpu sequences a device")
        ->check(CLI::IsMember({"strong", "weak"}))
        ->capture_default_str();
    command->add_option("--global-batch", options->global_batch, "Sequences a step (--mode strong)")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
    command->add_option("--batch-per-gpu", options->batch_per_device, "Sequences a step for each device (--mode weak)")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
    (void)add_sequence_option(*command, *options);
    CLI::Option* fixed =
        command->add_flag("--fixed-plan", options->fixed_plan,
                          "Search for a plan at the first number only, and give it more replicas at the others");
    CLI::Option* by_technique =
        command
            ->add_flag(
                "--by-technique", options->by_technique,
                "Compare DataParallel, DDP, ZeRO, tensor and pipeline parallelism, each alone, with the implementation "
                "orrery unless --implementation names others")
            ->excludes(fixed);
    add_request_options(*command, *options);
    add_limit_options(*command, options->goal);
    add_memory_margin_option(*command, options->memory_margin_gib);
    std::vector<const CLI::Option*> decisive;  // for the plan of a number of devices
    for (const CLI::Option* option : command->get_options()) {
        if (option != counts && option != fixed && option != by_technique) decisive.push_back(option);
    }
    add_cost_options(*command, options->costs);
    add_threads_option(*command, options->threads);
    (void)add_store_options(*command, options->store);
    command->add_option("--csv", options->csv, "Write the table to this file as CSV");
    command->add_option("--output", options->output,
                        "Write orrery.scaling/1 JSON (--by-technique: orrery.techniques/1) to this file");
    command->add_flag("--json", options->json, "Print orrery.scaling/1 JSON (--by-technique: orrery.techniques/1)");
    command->footer(
        "One shape: orrery scale --model llama3-8b --cluster dgx-h100 --gpus 8..256 --mode weak --batch-per-gpu 2 "
        "--seq 8192 --fixed-plan\n"
        "Each technique alone: orrery scale --model gpt2 --cluster dgx-h100 --gpus 1..64 --global-batch 64 --seq 1024 "
        "--by-technique\n"
        "Example: orrery scale --model llama3-8b --cluster dgx-h100 --gpus 8..256 --global-batch 256 --seq 8192");
    command->callback([options, decisive, &chosen] {
        options->given = options_given(decisive);
        if (options->batch_per_device == 0 && options->global_batch == 0) {
            throw CLI::RequiredError(options->is_weak() ? "--batch-per-gpu" : "--global-batch");
        }
        chosen = [options] { return on_threads(options->threads, [&] { return scale(*options); }); };
    });
}

}  // namespace orrery::cli
