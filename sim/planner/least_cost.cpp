#include "sim/planner/least_cost.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"

namespace orrery::sim {
namespace {

using program::PlanResult;

/// Sets the costs of the feasible results, and as spares what is paid for and idle.
void set_costs(const program::CostFigures& figures, std::vector<PlanResult>& results) {
    for (PlanResult& result : results) {
        const topologies::ClusterSpec& cluster = result.plan.cluster;
        const std::int64_t used = result.plan.parallelism.world_size(), rented = rented_devices(cluster, used);
        result.spare_devices = rented - used;
        if (!result.feasible) continue;
        const program::TokenCosts costs = figures.token_costs(
            result.tokens_per_s_per_device * static_cast<double>(used), rented, cluster.devices_per_node);
        result.usd_per_billion_tokens = costs.usd_per_billion_tokens;
        result.kwh_per_billion_tokens = costs.kwh_per_billion_tokens;
    }
}

void drop_slow(double limit_s, std::vector<PlanResult>& results) {
    std::erase_if(results, [&](const PlanResult& result) { return result.feasible && result.step_time_s > limit_s; });
}

void finish(const CostGoal& goal, double limit_s, ObjectiveSearch& all) {
    all.summary.objective = goal.objective;
    all.summary.step_limit_s = limit_s;
    all.summary.figures = goal.figures;
    set_costs(goal.figures, all.results);
}

}  // namespace

std::int64_t rented_devices(const topologies::ClusterSpec& cluster, std::int64_t devices) {
    if (cluster.ranks_may_share_devices()) return devices;
    return (devices + cluster.devices_per_node - 1) / cluster.devices_per_node * cluster.devices_per_node;
}

StepWeight cost_weight(const CostGoal& goal, const topologies::ClusterSpec& cluster) {
    const auto known = [](const std::optional<double>& cost) {
        ORRERY_CHECK(cost.has_value(), "an objective without the figure that it needs");
        return *cost;
    };
    return [goal, cluster, known](std::int64_t devices) {
        const std::int64_t rented = rented_devices(cluster, devices);
        return goal.objective == program::Objective::energy
                   ? known(goal.figures.kilowatts(rented, cluster.devices_per_node))
                   : known(goal.figures.usd_per_hour(rented));
    };
}

ObjectiveSearch least_cost(const LimitedSearch& search, std::size_t keep, const CostGoal& goal) {
    PlanSearch found = search(0, keep);
    const double fastest_s = found.results.front().step_time_s, limit_s = goal.limit.seconds_for(fastest_s);
    check_step_limit(fastest_s, limit_s);
    drop_slow(limit_s, found.results);
    ObjectiveSearch all{.summary = summary_of(found)};
    all.results = std::move(found.results);
    finish(goal, limit_s, all);
    return all;
}

CheapestPlans least_cost_at_most(const WeighedSearch& search, const topologies::ClusterSpec& cluster, std::size_t keep,
                                 const CostGoal& goal) {
    CheapestPlans cheapest;
    program::SearchSummary& summary = cheapest.found.summary;
    double limit_s = std::numeric_limits<double>::infinity();
    std::optional<PlanSearch> fastest;
    if (goal.limit.is_set()) {
        const auto no_weight = [](std::int64_t) { return 1.0; };
        fastest = search(no_weight, limit_s, 1);
        const double fastest_s = fastest->results.front().step_time_s;
        limit_s = goal.limit.seconds_for(fastest_s);
        check_step_limit(fastest_s, limit_s);
    }
    const StepWeight weight = cost_weight(goal, cluster);
    PlanSearch found = search(weight, limit_s, keep);
    const std::vector<double> values = weighed_steps(found, weight);
    ORRERY_CHECK(!values.empty(), "the fastest plan is within the limit, but no plan is");
    summary = summary_of(found);
    summary.proven_gap = std::max(0.0, 1 - found.least_open_s / values.front());
    summary.proven_ranks = static_cast<std::size_t>(
        std::find_if(values.begin(), values.end(), [&](double value) { return value >= found.least_open_s; }) -
        values.begin());
    if (fastest.has_value()) add_counts(summary.counts, *fastest);
    cheapest.device_counts = std::move(found.device_counts);
    cheapest.found.results = std::move(found.results);
    finish(goal, limit_s, cheapest.found);
    return cheapest;
}

}  // namespace orrery::sim
