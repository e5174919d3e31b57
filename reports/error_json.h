// ErrorSummary in documents; for the writers of this folder.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "reports/error_summary.h"

namespace orrery::reports {

/// "rows", "median_absolute_error", "mean_absolute_error", "p90_absolute_error" and "bias".
[[nodiscard]] nlohmann::ordered_json error_json(const ErrorSummary& errors);

}  // namespace orrery::reports
