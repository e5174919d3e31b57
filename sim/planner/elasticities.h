// By what share a step lengthens or shortens with an input of its plan, from derivatives of the simulation.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "sim/program/plan.h"

namespace orrery::sim {

/// A plan with one input moved a little, down and up.
struct MovedInput {
    program::Plan less, more;
    double log_ratio = 0;  // ln(larger value / smaller value)
};

/// d ln(step time) / d ln(input) of each input, for the step that predict() simulates: 0 if the input does not matter,
/// -1 if the step is as much shorter as the input is larger. All inputs share one simulation. No value for an input
/// that changes what is done, and not only how long it takes, or whose derivative grows without bounds (sim/sharing).
[[nodiscard]] std::vector<std::optional<double>> elasticities(const program::Plan& plan,
                                                              std::span<const MovedInput> inputs);

}  // namespace orrery::sim
