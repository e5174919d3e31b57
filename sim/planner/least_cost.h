// Searches for the plans that cost least, in dollars or energy: on given devices, or on any number of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>

#include "sim/planner/at_most.h"
#include "sim/planner/objectives.h"
#include "sim/program/cost_figures.h"

namespace orrery::sim {

/// Devices that are paid for if a job uses this many: those of whole nodes, except where ranks share a device.
[[nodiscard]] std::int64_t rented_devices(const topologies::ClusterSpec& cluster, std::int64_t devices);

/// Objective::cost or energy, with the figures that it needs.
struct CostGoal {
    program::Objective objective = program::Objective::cost;
    program::CostFigures figures;
    StepLimit limit;
};

/// Dollars or energy a second of the rented devices, to a constant factor.
[[nodiscard]] StepWeight cost_weight(const CostGoal& goal, const topologies::ClusterSpec& cluster);

/// The `keep` cheapest plans on a number of devices. Their cost is proportional to the step time, so these are the
/// fastest, within the limit on the step. Throws TooSlowError if no step is short enough.
[[nodiscard]] ObjectiveSearch least_cost(const LimitedSearch& search, std::size_t keep, const CostGoal& goal);

/// A search over numbers of devices for the least weighed step among plans whose step takes at most `most_step_s`
/// (search_weighed); `keep` plans. For several implementations it merges their searches.
using WeighedSearch = std::function<PlanSearch(const StepWeight& weight, double most_step_s, std::size_t keep)>;

struct CheapestPlans {
    ObjectiveSearch found;
    std::set<std::int64_t> device_counts;  // searched
};

/// The `keep` cheapest plans on any number of devices of the cluster. With a limit on the step the fastest plan is
/// searched first. PlanResult::spare_devices are those of rented nodes that a plan leaves idle.
[[nodiscard]] CheapestPlans least_cost_at_most(const WeighedSearch& search, const topologies::ClusterSpec& cluster,
                                               std::size_t keep, const CostGoal& goal);

}  // namespace orrery::sim
