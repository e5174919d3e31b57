// Derivatives of step times with respect to rates, checked against finite differences, as a table.
#pragma once

#include <span>
#include <string>

#include "sim/program/rate_difference.h"

namespace orrery::reports {

/// One row per last part of the rates' names, with the largest deviation among pairs without a corner.
[[nodiscard]] std::string rate_differences_text(std::span<const program::RateDifference> differences);

}  // namespace orrery::reports
