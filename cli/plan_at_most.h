// orrery plan --gpus-at-most, and what a number of devices without a plan is answered with.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "cli/plan_goal.h"
#include "sim/planner/least_cost.h"
#include "sim/planner/planner.h"

namespace orrery::cli {

/// Throws the error, with the nearest numbers of devices that have a plan if the requests' number has none. The
/// requests' clusters may have any number of nodes.
[[noreturn]] void refuse_count(const std::vector<sim::PlanRequest>& requests, std::int64_t devices,
                               const std::exception_ptr& problem);

/// The plans for the objective on any number of devices up to the requests'.
[[nodiscard]] sim::CheapestPlans search_any_number(const PlanGoal& goal, const std::vector<sim::PlanRequest>& requests,
                                                   std::size_t top, std::size_t prove, std::vector<std::string>& notes);

/// How many of the devices the best plan uses or, with costs, rents, and which numbers of them were searched.
[[nodiscard]] std::string spares_text(const sim::CheapestPlans& plans, std::int64_t devices);

}  // namespace orrery::cli
