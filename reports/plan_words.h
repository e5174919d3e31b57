// Plans, and what is known of them, in a few words, for tables whose rows are different plans.
#pragma once

#include <string>

#include "sim/program/scaling_curve.h"

namespace orrery::reports {

/// Such as "tp4 pp8 dp32 zero1 interleaved-1f1b vpp5 mb1 norm"; what is 1, or as always, is left out.
[[nodiscard]] std::string plan_words(const program::ChosenPlan& plan);

/// "pipeline bubble".
[[nodiscard]] std::string limit_name(program::Limit limit);
/// "compute 78%".
[[nodiscard]] std::string share_words(const program::LimitShare& share);
/// The largest share of the step; "-" if the shares are not known.
[[nodiscard]] std::string limit_words(const program::ScalingPoint& point);

/// "2026-09: list prices": where a figure is from.
[[nodiscard]] std::string origin_words(const program::DatedFigure& figure);

}  // namespace orrery::reports
