// Predictions of published runs and their errors, by source.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "reports/error_summary.h"
#include "reports/sweep_summary.h"
#include "sim/program/sensitivity.h"

namespace orrery::reports {

/// One published run. Values that are unknown or were not predicted are empty.
struct RowPrediction {
    std::string id, source;
    std::string sweep;    // equal for runs of one job under several layouts (published::sweep_of)
    bool counts = false;  // its error is part of the summary
    std::optional<double> predicted_step_time_s, measured_step_time_s;
    std::optional<double> predicted_peak_memory_gib, measured_peak_memory_gib;
    std::string memory_kind;  // of both peaks: "allocated", "reserved", "in use", "unstated"; empty: none measured
    std::optional<double> predicted_memory_in_use_gib;  // on the fullest rank's device
    std::string implementation;
    double memory_allowed_gib = 0;      // per device
    std::string memory_words;           // the largest consumers on that device, and the limit that a misfit exceeds
    bool ran_out = false;               // the run failed with out-of-memory; it never counts
    std::vector<std::string> inferred;  // facts that its source does not state
    program::Sensitivity sensitivity;   // of the predicted step time; empty if not requested
    std::string skipped;                // why nothing was predicted; empty: it was predicted
};

struct SourceSummary {
    std::string source;
    std::size_t rows = 0;     // rows that count and were predicted
    std::size_t skipped = 0;  // rows that count and were not predicted
    ErrorSummary step_time, peak_memory;
    std::vector<std::string> memory_kinds;  // kinds of memory compared in peak_memory
};

/// Whether predictions of device memory agree with the outcome of the runs.
struct FitSummary {
    std::size_t ran = 0;          // rows that count, were predicted, and ran
    std::size_t ran_refused = 0;  // part of `ran`: predicted not to fit
    std::size_t ran_out = 0;      // predicted rows whose runs ran out of memory
    std::size_t said_to_fit = 0;  // part of `ran_out`: predicted to fit
    std::size_t with_room = 0;    // part of `said_to_fit`: with more than kRoom of the allowed memory to spare
    double most_spare = 0;        // largest spare fraction of the allowed memory among `said_to_fit`
    std::string roomiest;         // the row with most_spare
    static constexpr double kRoom = 0.1;
};
[[nodiscard]] FitSummary fit_of(const std::vector<RowPrediction>& rows);

/// Of the rows that count and have both step times.
[[nodiscard]] SweepSummary sweeps_of(const std::vector<RowPrediction>& rows);

/// Rows that count, by source in the order of first appearance, then all together as source "all".
[[nodiscard]] std::vector<SourceSummary> summarise(const std::vector<RowPrediction>& rows);

struct RowsText {
    bool each_row = false;  // print a table of all rows first
    bool misfits = false;   // list the rows whose fit is predicted wrongly
};
/// The table by source and why rows were skipped.
[[nodiscard]] std::string row_predictions_text(const std::vector<RowPrediction>& rows, RowsText shown = {});
/// `orrery.row_predictions/1`. Ends in a newline.
[[nodiscard]] std::string row_predictions_json(const std::vector<RowPrediction>& rows);

}  // namespace orrery::reports
