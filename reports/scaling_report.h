// Scaling curves as people read them.
#pragma once

#include <string>

#include "sim/program/scaling_curve.h"

namespace orrery::reports {

/// A table of the points, the knee, and where the figures of costs are from. Ends in a newline.
[[nodiscard]] std::string scaling_text(const program::ScalingCurve& curve);

/// One row for each point; empty fields where a figure is not known. Ends in a newline.
[[nodiscard]] std::string scaling_csv(const program::ScalingCurve& curve);

/// "prices: 2.95 USD an hour for a device (2026-09: ...)"; "" if nothing is known. Ends in a newline.
[[nodiscard]] std::string cost_figures_text(const program::CostFigures& figures);

}  // namespace orrery::reports
