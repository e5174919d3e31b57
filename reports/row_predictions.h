// Published runs, predicted and measured: how far off, source by source.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "reports/error_summary.h"
#include "sim/program/sensitivity.h"

namespace orrery::reports {

/// One published run. What is not known or was not predicted is without a value.
struct RowPrediction {
    std::string id, source;
    bool counts = false;  // its error is part of the summary
    std::optional<double> predicted_step_time_s, measured_step_time_s;
    std::optional<double> predicted_peak_memory_gib, measured_peak_memory_gib;
    std::string memory_kind;  // of these two: "allocated", "reserved", "in use", "unstated"; empty: nothing measured
    std::optional<double> predicted_memory_in_use_gib;  // of the fullest rank's device
    std::string implementation;
    double memory_allowed_gib = 0;      // of a device
    std::string memory_words;           // what takes it there, and by which limit a run that does not fit does not
    bool ran_out = false;               // the run ended for want of memory; it never counts
    std::vector<std::string> inferred;  // facts that its source does not state
    program::Sensitivity sensitivity;   // of the predicted step time; empty where it was not asked for
    std::string skipped;                // why nothing was predicted; empty: it was
};

struct SourceSummary {
    std::string source;
    std::size_t rows = 0;     // that count and were predicted
    std::size_t skipped = 0;  // that count and were not
    ErrorSummary step_time, peak_memory;
    std::vector<std::string> memory_kinds;  // that peak_memory compares
};

/// Whether predictions of what a device must hold agree with what became of the runs.
struct FitSummary {
    std::size_t ran = 0;          // rows that count, were predicted, and ran
    std::size_t ran_refused = 0;  // of them: said not to fit
    std::size_t ran_out = 0;      // runs that ran out of memory, predicted
    std::size_t said_to_fit = 0;  // of them
    std::size_t with_room = 0;    // of these: with more than kRoom of the device to spare
    double most_spare = 0;        // share of the device, of those said to fit
    std::string roomiest;         // whose that is
    static constexpr double kRoom = 0.1;
};
[[nodiscard]] FitSummary fit_of(const std::vector<RowPrediction>& rows);

/// Rows that count, by source in the order in which sources first appear, then all together under the source "all".
[[nodiscard]] std::vector<SourceSummary> summarise(const std::vector<RowPrediction>& rows);

struct RowsText {
    bool each_row = false;  // before the table
    bool misfits = false;   // the rows that ran and are said not to fit, and those that ran out and are said to
};
/// The table by source and why rows were skipped.
[[nodiscard]] std::string row_predictions_text(const std::vector<RowPrediction>& rows, RowsText shown = {});
/// `orrery.row_predictions/1`. Ends in a newline.
[[nodiscard]] std::string row_predictions_json(const std::vector<RowPrediction>& rows);

}  // namespace orrery::reports
