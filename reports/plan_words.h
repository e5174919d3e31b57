// A plan in a few words, for tables whose rows are different plans.
#pragma once

#include <string>

#include "sim/program/scaling_curve.h"

namespace orrery::reports {

/// Such as "tp4 pp8 dp32 zero1 interleaved-1f1b vpp5 mb1 norm"; what is 1, or as always, is left out.
[[nodiscard]] std::string plan_words(const program::ChosenPlan& plan);

}  // namespace orrery::reports
