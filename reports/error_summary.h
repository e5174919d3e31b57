// How far predictions are off, over some rows.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace orrery::reports {

/// Of the relative errors predicted / measured - 1 of some rows.
struct ErrorSummary {
    std::size_t rows = 0;                  // with both values; 0: the rest is 0
    double median = 0, mean = 0, p90 = 0;  // of the absolute errors; p90 interpolated between ranks
    double bias = 0;                       // mean of the signed ones
};

[[nodiscard]] ErrorSummary error_summary(std::vector<double> errors);
/// Of a table: rows, median, mean, p90, bias; "-" where there are no rows.
[[nodiscard]] std::vector<std::string> error_cells(const ErrorSummary& errors);

}  // namespace orrery::reports
