// Fits the figures of a device (NcclProfile) or of a network (NcclNetwork) to measured collectives (docs/network.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/network/collectives.h"

namespace orrery::sim {

struct MeasuredCollective {
    std::size_t cluster = 0;  // index in MeasuredCollectives::clusters
    program::CommKind kind{};
    std::int64_t bytes = 0;
    GroupPlacement placement;
    CollectiveOptions options;
    double measured_s = 0;  // > 0
    double tool_s = 0;      // part of it: the measuring tool's own overhead
    std::string part;       // rows left out together in cross-validation: "all_gather of 8"
};
struct MeasuredCollectives {
    std::vector<topologies::ClusterSpec> clusters;
    std::vector<MeasuredCollective> rows;
};

struct FittedFigure {
    std::string key;  // as in files: "base_us", "ring node" (the share within the node)
    double before = 0, after = 0;
    std::size_t rows = 0;  // that it affects
    bool held = false;     // too few rows: kept as it was
};
struct NcclFit {
    std::vector<FittedFigure> figures;
    /// predicted / measured - 1 of each row: with the figures as they were, with the fitted ones, and with figures
    /// fitted without the row's part. `left_out` is empty if there is only one part.
    std::vector<double> before, after, left_out;
};

/// Fit the figures of the device or of the NIC; all clusters must have the same one.
enum class FitTarget : std::uint8_t { device, network };

/// Throws InputError if the device or NIC has no figures to start from, or if fewer than kFewestRows rows are given.
[[nodiscard]] NcclFit fit_nccl(MeasuredCollectives measured, FitTarget target);

}  // namespace orrery::sim
