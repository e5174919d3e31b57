// Measured collectives, predicted and measured: how far off, by GPU and by regime.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reports/error_summary.h"

namespace orrery::reports {

/// One measured collective. What is not known or was not predicted is without a value.
struct CollectivePrediction {
    std::string id, source;
    std::string op;        // as the file names it
    std::string hardware;  // in the source's words
    std::string device;    // the profile; empty: none
    std::string dtype, nccl_version;
    std::int64_t ranks = 0, nodes = 0;
    std::optional<std::int64_t> bytes;  // message size S
    std::string algorithm, protocol;
    std::optional<double> predicted_us, measured_us;
    std::string skipped;  // why nothing was predicted or the measurement does not count; empty: neither
};

/// Errors of predicted / measured - 1 of what one device (or all: "all") took in one regime.
struct CollectiveSummary {
    std::string device;
    std::string regime;  // "one_node" and "across_nodes": of 1 MiB and more; "below_1_mib"
    ErrorSummary errors;
};
/// By device in order of name, then all together; regimes without rows are left out.
[[nodiscard]] std::vector<CollectiveSummary> summarise(const std::vector<CollectivePrediction>& rows);

/// The table by device and regime, and why rows were skipped; `each_row`: all rows before it.
[[nodiscard]] std::string collective_predictions_text(const std::vector<CollectivePrediction>& rows, bool each_row);
/// `orrery.collectives_validation/1`. Ends in a newline.
[[nodiscard]] std::string collective_predictions_json(const std::vector<CollectivePrediction>& rows);

}  // namespace orrery::reports
