// ErrorSummary as JSON. Private to this folder.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "reports/error_summary.h"

namespace orrery::reports {

/// The keys "rows", "median_absolute_error", "mean_absolute_error", "p90_absolute_error" and "bias".
[[nodiscard]] nlohmann::ordered_json error_json(const ErrorSummary& errors);

}  // namespace orrery::reports
