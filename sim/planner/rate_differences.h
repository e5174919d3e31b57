// Derivatives of a step in its plan's rates, held beside finite differences: the plan simulated again with one rate
// moved.
#pragma once

#include <vector>

#include "sim/program/plan.h"
#include "sim/program/rate_difference.h"

namespace orrery::sim {

/// Of the rates that the step feels, by their derivative or by a difference: at least program::kLeastSlope.
[[nodiscard]] std::vector<program::RateDifference> rate_differences(const program::Plan& plan);

}  // namespace orrery::sim
