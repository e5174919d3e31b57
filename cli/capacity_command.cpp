// orrery capacity: the smallest cluster on which a job is done by a date.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/best_plan.h"
#include "cli/capacity_goal.h"
#include "cli/commands.h"
#include "cli/cost_options.h"
#include "cli/parallel.h"
#include "cli/plan_job.h"
#include "core/error.h"
#include "core/file.h"
#include "reports/capacity_report.h"
#include "reports/model_text.h"
#include "sim/capacity/job_time.h"
#include "sim/capacity/size_search.h"

namespace orrery::cli {
namespace {

using program::CapacityAnswer;
using program::CapacityLimit;
using program::CapacitySize;

struct CapacityOptions : PlanJob {
    std::string tokens, by, start, output;
    std::vector<std::string> clusters;
    double probability = 0.9, weibull_shape = 1;
    double max_usd = 0, max_megawatts = 0;  // 0: no limit
    std::int64_t max_devices = 131072;
    std::optional<double> checkpoint_gb_per_s, checkpoint_minutes, device_hours_per_interruption, detection_s,
        restart_s, replaced_share, repair_hours;
    CostOptions costs;
    bool json = false;
    int threads = 0;
};

program::FaultFigures fault_figures_of(const CapacityOptions& options) {
    program::FaultFigures figures = catalogue_of(options.costs).faults;
    const auto give = [](std::optional<program::DatedFigure>& figure, const std::optional<double>& given,
                         const char* option) {
        if (given) figure = {.value = *given, .as_of = "", .source = option};
    };
    give(figures.device_hours_per_interruption, options.device_hours_per_interruption, "--gpu-hours-per-interruption");
    give(figures.detection_s, options.detection_s, "--detection-s");
    give(figures.restart_s, options.restart_s, "--restart-s");
    give(figures.replaced_share, options.replaced_share, "--replaced-share");
    give(figures.repair_hours, options.repair_hours, "--repair-hours");
    return figures;
}

program::CapacityGoal goal_of(const CapacityOptions& options, const models::ModelSpec& model) {
    program::CapacityGoal goal{.model = model.name,
                               .tokens = tokens_named(options.tokens, "--tokens"),
                               .sequence_length = options.sequence,
                               .global_batch_size = options.global_batch,
                               .days = days_named(options.by, "--by"),
                               .probability = options.probability,
                               .start = options.start,
                               .max_usd = options.max_usd,
                               .max_megawatts = options.max_megawatts,
                               .max_devices = options.max_devices};
    if (goal.days == 0) {
        if (options.start.empty()) {
            throw InputError("command line", "--by", options.by,
                             "a date only with --start, such as --start 2026-12-01");
        }
        goal.by = options.by;
        goal.days = days_between(options.start, options.by);
    } else if (!options.start.empty()) {
        goal.by = date_after(options.start, goal.days);
    }
    return goal;
}

/// One cluster's sizes.
class Sizes {
  public:
    Sizes(const CapacityOptions& options, const models::ModelSpec& model, sim::JobTerms terms)
        : options_(options), model_(model), terms_(std::move(terms)) {}

    [[nodiscard]] std::vector<CapacitySize> evaluate(const std::vector<std::int64_t>& all) const {
        std::vector<CapacitySize> sizes(all.size());
        in_parallel("planning", all.size(), [&](std::size_t i) { sizes[i] = size_with(all[i]); });
        return sizes;
    }

  private:
    [[nodiscard]] CapacitySize size_with(std::int64_t devices) const {
        PlanJob job = options_;
        job.devices = devices;
        try {
            const BestPlan best = best_plan(job, model_);
            program::ScalingPoint point = program::scaling_point(best.result, devices);
            point.considered = best.counts.considered;
            point.simulated = best.counts.simulated;
            const double bytes = terms_.faults.checkpoint_bytes_per_parameter
                                     ? terms_.faults.checkpoint_bytes_per_parameter->value
                                     : sim::checkpoint_bytes_per_parameter(best.result.plan.training);
            return sim::job_time_with_spares(terms_, point, bytes);
        } catch (const InfeasibleError& error) {
            return {.devices = devices, .reason = error.what()};
        } catch (const InputError& error) {
            return {.devices = devices, .reason = error.what()};
        }
    }

    const CapacityOptions& options_;
    const models::ModelSpec& model_;
    sim::JobTerms terms_;
};

/// Devices that the limit on the power allows.
std::int64_t most_by_power(const sim::JobTerms& terms) {
    if (terms.goal.max_megawatts == 0) return std::numeric_limits<std::int64_t>::max();
    const double of_node = *terms.costs.kilowatts(terms.devices_per_node, terms.devices_per_node);
    const double nodes = std::floor(terms.goal.max_megawatts * 1000 / of_node);
    return static_cast<std::int64_t>(nodes) * terms.devices_per_node;
}

/// The least number of devices that could train the tokens in time at their peak.
std::int64_t least_used(const sim::JobTerms& terms, const CapacityOptions& options, const models::ModelSpec& model,
                        const topologies::ClusterSpec& cluster) {
    const double flops =
        models::model_flops_per_sequence(model, options.sequence, models::FlopsConvention::causal_half) *
        terms.goal.tokens / static_cast<double>(options.sequence);
    double peak = 0;
    for (const topologies::PeakRate& rate : cluster.device.peaks) peak = std::max(peak, rate.tflops.value * 1e12);
    constexpr double kSecondsPerDay = 86400;
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(flops / peak / (terms.goal.days * kSecondsPerDay)));
}

CapacityAnswer answer_for(const CapacityOptions& options, const models::ModelSpec& model,
                          const program::CapacityGoal& goal) {
    const topologies::ClusterSpec cluster = topologies::load_cluster(options.cluster, 1);
    sim::JobTerms terms{.goal = goal,
                        .parameters = static_cast<double>(models::parameter_count(model)),
                        .devices_per_node = cluster.devices_per_node,
                        .faults = fault_figures_of(options),
                        .costs = cost_figures_of(options.costs, cluster),
                        .checkpoint_gb_per_s = options.checkpoint_gb_per_s.value_or(0),
                        .checkpoint_interval_s = options.checkpoint_minutes.value_or(0) * 60,
                        .weibull_shape = options.weibull_shape,
                        .seed = static_cast<std::uint64_t>(options.seed)};
    if (goal.max_usd > 0 && !terms.costs.usd_per_device_hour) {
        throw InputError("command line", "--max-usd", fmt::format("{}", goal.max_usd),
                         "only with a price of " + cluster.device.name + " (--usd-per-gpu-hour)");
    }
    if (goal.max_megawatts > 0 && !terms.costs.watts) {
        throw InputError("command line", "--max-mw", fmt::format("{}", goal.max_megawatts),
                         "only with the power of " + cluster.device.name + " (--watts)");
    }
    CapacityAnswer answer{
        .cluster = options.cluster, .devices_per_node = cluster.devices_per_node, .figures = terms.costs};
    const std::int64_t by_power = most_by_power(terms), most = std::min(goal.max_devices, by_power);
    const CapacityLimit by_size = by_power < goal.max_devices ? CapacityLimit::megawatts : CapacityLimit::devices;
    terms.most_devices = most;
    if (most < cluster.devices_per_node) {
        answer.limit = by_size;
        answer.best = {.devices = cluster.devices_per_node, .reason = "the limits leave less than one node"};
        return answer;
    }
    const Sizes sizes(options, model, terms);
    sim::find_smallest(
        {.least = least_used(terms, options, model, cluster), .most = most, .grain = cluster.devices_per_node},
        [&](const std::vector<std::int64_t>& all) { return sizes.evaluate(all); },
        [&](const CapacitySize& size) { return size.is_found() && size.days_needed <= goal.days; }, answer);
    if (answer.limit == CapacityLimit::devices) answer.limit = by_size;
    if (answer.meets && goal.max_usd > 0 && *answer.best.usd > goal.max_usd) {
        answer.meets = false;
        answer.limit = CapacityLimit::usd;
    }
    return answer;
}

/// Those that meet the goal first, then by cost if all costs are known, or else by devices.
void rank(std::vector<CapacityAnswer>& answers) {
    const bool priced = std::all_of(answers.begin(), answers.end(),
                                    [](const CapacityAnswer& one) { return !one.best.is_found() || one.best.usd; });
    std::stable_sort(answers.begin(), answers.end(), [priced](const CapacityAnswer& a, const CapacityAnswer& b) {
        if (a.meets != b.meets) return a.meets;
        if (a.best.is_found() != b.best.is_found()) return a.best.is_found();
        if (!a.best.is_found()) return false;
        return priced ? *a.best.usd < *b.best.usd : a.best.devices < b.best.devices;
    });
}

int plan_capacity(const CapacityOptions& options) {
    check_outputs({{"--output", options.output}},
                  {{"--model", options.model}, {"--catalogue", options.costs.catalogue}});
    const models::ModelSpec model = models::load_model(options.model, options.parts);
    check_together(options);
    program::Capacity capacity{.goal = goal_of(options, model), .faults = fault_figures_of(options)};
    check_cuts(options, model);
    std::vector<CapacityOptions> each;
    for (const std::string& cluster : options.clusters) {
        each.push_back(options);
        each.back().cluster = cluster;
        (void)requests_for_any_size(each.back(), model);  // requests that cannot be made are refused before any search
    }
    for (const CapacityOptions& one : each) {
        capacity.answers.push_back(answer_for(one, model, capacity.goal));
    }
    rank(capacity.answers);
    if (!options.output.empty()) write_file_atomically(options.output, program::to_json_text(capacity));
    if (options.json) {
        print(program::to_json_text(capacity));
    } else {
        print(fmt::format("{} ({}): ", model.name, reports::parameters_text(model)) +
              reports::capacity_text(capacity, date_after));
        print(reports::left_out_text(model, options.sequence));
    }
    return capacity.answers.front().meets ? kExitDone : kExitInfeasible;
}

void add_fault_options(CLI::App& command, CapacityOptions& options) {
    const auto seconds = CLI::Range(1e-3, 1e6);
    command
        .add_option("--gpu-hours-per-interruption", options.device_hours_per_interruption,
                    "Device-hours per unexpected interruption of a job; default: the catalogue's")
        ->check(CLI::Range(1.0, 1e9));
    command.add_option("--detection-s", options.detection_s, "Seconds from a failure until the job is aborted")
        ->check(seconds);
    command.add_option("--restart-s", options.restart_s, "Seconds from there until it loads its checkpoint")
        ->check(seconds);
    command
        .add_option("--replaced-share", options.replaced_share,
                    "Share of the interruptions after which a node has to be replaced")
        ->check(CLI::Range(1e-9, 1.0));
    command.add_option("--repair-hours", options.repair_hours, "Hours until a replaced node can be used again")
        ->check(CLI::Range(1e-3, 1e5));
    command
        .add_option("--checkpoint-gb-per-s", options.checkpoint_gb_per_s,
                    "GB/s at which checkpoints are written and read by all nodes together; default: the catalogue's "
                    "rate of a node times the nodes")
        ->check(CLI::Range(1e-3, 1e6));
    command
        .add_option("--checkpoint-minutes", options.checkpoint_minutes,
                    "Minutes of work between checkpoints; default: the best for the failures")
        ->check(CLI::Range(1e-2, 1e5));
    command
        .add_option("--weibull-shape", options.weibull_shape,
                    "Shape of the distribution of times between failures: 1: a constant rate; below 1: bursts")
        ->check(CLI::Range(0.2, 5.0))
        ->capture_default_str();
}

}  // namespace

void add_capacity(CLI::App& app, Action& chosen) {
    auto options = std::make_shared<CapacityOptions>();
    CLI::App* command = app.add_subcommand(
        "capacity", "Find the smallest cluster on which a job is done by a date, with failures, costs and energy");
    command->add_option("--model", options->model, "Zoo name, or path of a Hugging Face config.json")->required();
    add_text_only_option(*command, options->parts);
    command
        ->add_option("--cluster", options->clusters,
                     "Preset names or cluster files, separated by commas; all are searched and ranked")
        ->required()
        ->delimiter(',');
    command->add_option("--tokens", options->tokens, "Tokens to train, such as 300B, 15T or 1.4e12")->required();
    command->add_option("--by", options->by, "Time for it, such as 90d, 12w or 36h, or a date with --start")
        ->required();
    command->add_option("--start", options->start, "Date on which it starts, such as 2026-12-01");
    command->add_option("--global-batch", options->global_batch, "Sequences a step")
        ->required()
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
    (void)add_sequence_option(*command, *options);
    command
        ->add_option("--probability", options->probability,
                     "Probability with which the time has to suffice, over failures and the predicted interval")
        ->check(CLI::Range(0.01, 0.99))
        ->capture_default_str();
    command->add_option("--gpus-at-most", options->max_devices, "Devices that may be used, spare ones included")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
        ->capture_default_str();
    command->add_option("--max-usd", options->max_usd, "Most that the job may cost")->check(CLI::Range(1e-2, 1e12));
    command->add_option("--max-mw", options->max_megawatts, "Most power that the devices may draw, in megawatts")
        ->check(CLI::Range(1e-6, 1e6));
    add_fault_options(*command, *options);
    add_cost_options(*command, options->costs);
    add_request_options(*command, *options);
    add_limit_options(*command, options->goal);
    add_memory_margin_option(*command, options->memory_margin_gib);
    add_seed_option(*command, *options);
    add_threads_option(*command, options->threads);
    command->add_option("--output", options->output, "Write orrery.capacity/1 JSON to this file");
    command->add_flag("--json", options->json, "Print orrery.capacity/1 JSON");
    command->footer(
        "Two clusters: orrery capacity --model llama3-8b --cluster dgx-h100,dgx-b200 --tokens 300B --by 30d "
        "--global-batch 512 --seq 8192\n"
        "Example: orrery capacity --model llama3-8b --cluster dgx-h100 --tokens 1T --by 2027-03-31 --start 2027-01-01 "
        "--global-batch 1024 --seq 8192");
    command->callback([options, &chosen] {
        chosen = [options] { return on_threads(options->threads, [&] { return plan_capacity(*options); }); };
    });
}

}  // namespace orrery::cli
