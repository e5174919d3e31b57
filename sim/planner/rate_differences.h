// Compares the derivatives of a step time by its plan's rates with finite differences, for which the plan is simulated
// again with one rate changed.
#pragma once

#include <vector>

#include "sim/program/plan.h"
#include "sim/program/rate_difference.h"

namespace orrery::sim {

/// The rates whose derivative or finite difference is at least program::kLeastSlope.
[[nodiscard]] std::vector<program::RateDifference> rate_differences(const program::Plan& plan);

}  // namespace orrery::sim
