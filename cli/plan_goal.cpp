#include "cli/plan_goal.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/units.h"

namespace orrery::cli {
namespace {

constexpr const char* kStepTimes = "a number of seconds above 0, such as 20.5, or a percentage from 0% to 1000%";

/// A limit on the step, from "20.5" or "5%".
sim::StepLimit step_limit_of(const std::string& text) {
    if (text.empty()) return {};
    const bool is_share = text.back() == '%';
    double number = 0;
    const char* const end = text.data() + text.size() - (is_share ? 1 : 0);
    const auto [rest, error] = std::from_chars(text.data(), end, number);
    const bool in_range = is_share ? number >= 0 && number <= 1000 : number > 0;
    if (error != std::errc() || rest != end || !std::isfinite(number) || !in_range) {
        throw InputError("command line", "--max-step-time", text, kStepTimes);
    }
    if (is_share) return {.slack = number / 100};
    return {.seconds = number};
}

bool is_by_memory(const PlanGoal& goal) {
    return goal.objective == "memory";
}

}  // namespace

void add_goal_options(CLI::App& command, PlanGoal& goal) {
    command
        .add_option(
            "--objective", goal.objective,
            "Rank by the step time; by the peak memory of the fullest rank (equal ones by the step time); or by "
            "what a token costs on whole nodes, in dollars (cost) or in energy")
        ->check(CLI::IsMember({"time", "memory", "cost", "energy"}))
        ->capture_default_str();
    command.add_flag("--pareto", goal.pareto,
                     "Instead show the front of step time and peak memory: the fastest plan at each of at most --top "
                     "limits on the memory");
    command.add_option(
        "--max-step-time", goal.max_step_time,
        "With an --objective other than time or --pareto: only steps of at most this many seconds, or (5%) at most "
        "this much longer than the fastest plan's");
    add_limit_options(command, goal);
    add_cost_options(command, goal.costs);
}

void add_limit_options(CLI::App& command, PlanGoal& goal) {
    command
        .add_option("--max-memory", goal.max_memory_gib,
                    "Only plans whose peak memory on every rank is at most this many GiB, less than the device leaves")
        ->check(CLI::Range(1e-3, 1e6));
    command
        .add_option("--exclude", goal.exclude,
                    "No plan with this value in a column of the table, such as tp=16, schedule=zb-v, stages=uneven or "
                    "zero3 (data=zero3); may be repeated")
        ->allow_extra_args(false);
}

void check_goal(const PlanGoal& goal, std::size_t top, std::size_t prove) {
    const auto refuse = [](const std::string& flag, const std::string& value, const std::string& allowed) {
        throw InputError("command line", flag, value, allowed);
    };
    if (goal.pareto && goal.objective != "time") refuse("--objective", goal.objective, "only time with --pareto");
    if (goal.pareto && top < 2) refuse("--top", std::to_string(top), "at least 2 with --pareto");
    const bool has_limits = goal.pareto || is_by_memory(goal);
    if (has_limits && prove > 1) {
        refuse("--prove-top", std::to_string(prove), "only without --objective memory and --pareto");
    }
    if (!goal.max_step_time.empty() && !has_limits && !goal.is_by_cost()) {
        refuse("--max-step-time", goal.max_step_time, "only with --objective memory, cost or energy, or --pareto");
    }
    if (goal.costs != CostOptions() && !goal.is_by_cost()) {
        refuse("--objective", goal.objective, "cost or energy, with options about prices and power");
    }
    (void)step_limit_of(goal.max_step_time);
    (void)exclusions_of(goal);
}

std::vector<sim::Exclusion> exclusions_of(const PlanGoal& goal) {
    std::vector<sim::Exclusion> exclusions;
    for (const std::string& text : goal.exclude) exclusions.push_back(sim::exclusion_named(text, "--exclude"));
    return exclusions;
}

void drop_excluded(const PlanGoal& goal, std::vector<std::string>& implementations) {
    const std::vector<std::string> all = implementations;
    for (const sim::Exclusion& exclusion : exclusions_of(goal)) {
        if (exclusion.field == sim::PlanField::stack) {
            std::erase(implementations,
                       sim::allowed_values(exclusion.field).at(static_cast<std::size_t>(exclusion.value)));
        }
    }
    if (implementations.empty()) {
        throw InputError("command line", "--exclude", fmt::format("{}", fmt::join(goal.exclude, ", ")),
                         fmt::format("not all of the stacks that are searched, {}", fmt::join(all, ", ")));
    }
}

std::int64_t max_memory_bytes(const PlanGoal& goal, const program::Plan& of_cluster, std::optional<double> margin_gib) {
    if (!goal.max_memory_gib.has_value()) return 0;
    const std::int64_t left = sim::memory_per_rank_bytes(of_cluster, margin_gib);
    const double bytes = *goal.max_memory_gib * kGibibyte;
    if (bytes > static_cast<double>(left)) {
        throw InputError("command line", "--max-memory", fmt::format("{}", *goal.max_memory_gib),
                         fmt::format("at most {:.2f}, the GiB that the device and the margin leave a rank",
                                     std::floor(to_gib(Bytes(left)) * 100) / 100));
    }
    return static_cast<std::int64_t>(bytes);
}

sim::CostGoal cost_goal_of(const PlanGoal& goal, const topologies::ClusterSpec& cluster) {
    sim::CostGoal costs{.objective = *value_named<program::Objective>(goal.objective),
                        .figures = cost_figures_of(goal.costs, cluster),
                        .limit = step_limit_of(goal.max_step_time)};
    const auto refuse = [&](const char* what, const char* option) {
        throw InputError(
            "command line", "--objective", goal.objective,
            fmt::format("only with {}, since the {} of {} is not known", option, what, cluster.device.name));
    };
    const bool is_energy = costs.objective == program::Objective::energy;
    if (is_energy && !costs.figures.watts) refuse("power", "--watts");
    if (!is_energy && !costs.figures.usd_per_device_hour) refuse("price", "--usd-per-gpu-hour");
    return costs;
}

sim::ObjectiveSearch search_for(const PlanGoal& goal, const topologies::ClusterSpec& cluster, std::size_t top,
                                const sim::LimitedSearch& search, const std::function<sim::LeastMemory()>& least) {
    const sim::StepLimit limit = step_limit_of(goal.max_step_time);
    if (goal.pareto) {
        sim::ObjectiveSearch front = sim::pareto_front(search, least(), top, limit);
        sim::compare_with_first(front.results);
        return front;
    }
    if (is_by_memory(goal)) return sim::least_memory(search, least(), top, limit);
    if (goal.is_by_cost()) {
        sim::ObjectiveSearch cheapest = sim::least_cost(search, top, cost_goal_of(goal, cluster));
        sim::compare_with_first(cheapest.results);
        return cheapest;
    }
    sim::PlanSearch found = search(0, top);
    sim::ObjectiveSearch fastest{.summary = sim::summary_of(found)};
    fastest.results = std::move(found.results);
    sim::compare_with_first(fastest.results);
    return fastest;
}

}  // namespace orrery::cli
