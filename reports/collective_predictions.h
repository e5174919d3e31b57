// Predictions of measured collectives and their errors, by GPU and by regime.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reports/error_summary.h"

namespace orrery::reports {

/// One measured collective. Values that are unknown or were not predicted are empty.
struct CollectivePrediction {
    std::string id, source;
    std::string op;        // the file's name for it
    std::string hardware;  // the source's name for it
    std::string device;    // the profile; empty: none fits
    std::string dtype, nccl_version;
    std::int64_t ranks = 0, nodes = 0;
    std::optional<std::int64_t> bytes;  // message size S
    std::string algorithm, protocol;
    std::optional<double> predicted_us, measured_us;
    std::string skipped;  // why there is no prediction, or why the measurement does not count; empty: it counts
};

/// Errors predicted / measured - 1 of one device (or "all") in one regime.
struct CollectiveSummary {
    std::string device;
    std::string regime;  // "one_node" and "across_nodes" (both 1 MiB and more), "below_1_mib"
    ErrorSummary errors;
};
/// By device name, then "all"; regimes without rows are left out.
[[nodiscard]] std::vector<CollectiveSummary> summarise(const std::vector<CollectivePrediction>& rows);

/// The table by device and regime, and why rows were skipped; with `each_row` preceded by a table of all rows.
[[nodiscard]] std::string collective_predictions_text(const std::vector<CollectivePrediction>& rows, bool each_row);
/// `orrery.collectives_validation/1`. Ends in a newline.
[[nodiscard]] std::string collective_predictions_json(const std::vector<CollectivePrediction>& rows);

}  // namespace orrery::reports
