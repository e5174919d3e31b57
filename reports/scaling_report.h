// Scaling curves as people read them.
#pragma once

#include <optional>
#include <string>

#include "sim/program/scaling_curve.h"

namespace orrery::reports {

/// A table of the points, the knee, and where the figures of costs are from. Ends in a newline.
[[nodiscard]] std::string scaling_text(const program::ScalingCurve& curve);

/// One row for each point; empty fields where a figure is not known. Ends in a newline.
[[nodiscard]] std::string scaling_csv(const program::ScalingCurve& curve);
/// A row of it, and the names of its columns; both without a newline.
[[nodiscard]] std::string scaling_csv_row(const program::ScalingPoint& point);
inline constexpr const char* kScalingColumns =
    "devices,devices_used,global_batch_size,implementation,plan,step_time_s,step_time_low_s,step_time_high_s,"
    "tokens_per_s,speed_up,efficiency,marginal_efficiency,mfu,hfu,peak_memory_gib,exposed_communication_s,"
    "bubble_fraction,idle_fraction,limit,usd_per_billion_tokens,kwh_per_billion_tokens,reason";

/// "prices: 2.95 USD an hour for a device (2026-09: ...)"; "" if nothing is known. Ends in a newline.
[[nodiscard]] std::string cost_figures_text(const program::CostFigures& figures);
/// Dollars or kWh: "92.85", "1,234"; "-" if not known.
[[nodiscard]] std::string amount_text(const std::optional<double>& amount);

}  // namespace orrery::reports
