// Published runs, predicted and measured: how far off, source by source.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "reports/error_summary.h"

namespace orrery::reports {

/// One published run. What is not known or was not predicted is without a value.
struct RowPrediction {
    std::string id, source;
    bool counts = false;  // its error is part of the summary
    std::optional<double> predicted_step_time_s, measured_step_time_s;
    std::optional<double> predicted_peak_memory_gib, measured_peak_memory_gib;
    std::string skipped;  // why nothing was predicted; empty: it was
};

struct SourceSummary {
    std::string source;
    std::size_t rows = 0;     // that count and were predicted
    std::size_t skipped = 0;  // that count and were not
    ErrorSummary step_time, peak_memory;
};

/// Rows that count, by source in the order in which sources first appear, then all together under the source "all".
[[nodiscard]] std::vector<SourceSummary> summarise(const std::vector<RowPrediction>& rows);

/// The table by source and why rows were skipped; `each_row`: all rows before it.
[[nodiscard]] std::string row_predictions_text(const std::vector<RowPrediction>& rows, bool each_row);
/// `orrery.row_predictions/1`. Ends in a newline.
[[nodiscard]] std::string row_predictions_json(const std::vector<RowPrediction>& rows);

}  // namespace orrery::reports
