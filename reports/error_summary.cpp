#include "reports/error_summary.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "reports/error_json.h"
#include "reports/table.h"

namespace orrery::reports {

double quantile(const std::vector<double>& sorted, double share) {
    const double place = share * static_cast<double>(sorted.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, sorted.size() - 1);
    return sorted[below] + (sorted[above] - sorted[below]) * (place - static_cast<double>(below));
}

ErrorSummary error_summary(std::vector<double> errors) {
    ErrorSummary result{.rows = errors.size()};
    if (errors.empty()) return result;
    const auto count = static_cast<double>(errors.size());
    for (double& error : errors) {
        result.bias += error / count;
        error = std::abs(error);
        result.mean += error / count;
    }
    std::sort(errors.begin(), errors.end());
    result.median = quantile(errors, 0.5);
    result.p90 = quantile(errors, 0.9);
    return result;
}

std::vector<std::string> error_cells(const ErrorSummary& errors) {
    if (errors.rows == 0) return {"-", "-", "-", "-", "-"};
    return {format_integer(static_cast<std::int64_t>(errors.rows)), format_percent(errors.median),
            format_percent(errors.mean), format_percent(errors.p90), format_signed_percent(errors.bias)};
}

nlohmann::ordered_json error_json(const ErrorSummary& errors) {
    return {{"rows", errors.rows},
            {"median_absolute_error", errors.median},
            {"mean_absolute_error", errors.mean},
            {"p90_absolute_error", errors.p90},
            {"bias", errors.bias}};
}

}  // namespace orrery::reports
