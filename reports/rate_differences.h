// How derivatives of steps in rates hold beside finite differences, as a table.
#pragma once

#include <span>
#include <string>

#include "sim/program/rate_difference.h"

namespace orrery::reports {

/// By the last part of the rates' names, with the largest deviation where there is no corner.
[[nodiscard]] std::string rate_differences_text(std::span<const program::RateDifference> differences);

}  // namespace orrery::reports
