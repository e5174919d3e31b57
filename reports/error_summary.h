// Statistics of prediction errors.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace orrery::reports {

/// Statistics of relative errors predicted / measured - 1.
struct ErrorSummary {
    std::size_t rows = 0;                  // number of errors; 0: the other members are 0
    double median = 0, mean = 0, p90 = 0;  // of the absolute errors, interpolated between order statistics
    double bias = 0;                       // mean of the signed errors
};

/// Quantile of sorted values, of which there are some, with linear interpolation.
[[nodiscard]] double quantile(const std::vector<double>& sorted, double share);
[[nodiscard]] ErrorSummary error_summary(std::vector<double> errors);
/// Table cells for rows, median, mean, p90 and bias; "-" where there are no rows.
[[nodiscard]] std::vector<std::string> error_cells(const ErrorSummary& errors);

}  // namespace orrery::reports
