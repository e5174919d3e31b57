// The figures of a device (NcclProfile) or of a network (NcclNetwork) that make NCCL's model come closest to measured
// collectives (docs/network.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/network/collectives.h"

namespace orrery::sim {

struct MeasuredCollective {
    std::size_t cluster = 0;  // its place in MeasuredCollectives::clusters
    program::CommKind kind{};
    std::int64_t bytes = 0;
    GroupPlacement placement;
    CollectiveOptions options;
    double measured_s = 0;  // > 0
    double tool_s = 0;      // of it, what the measuring tool takes beside the collective
    std::string part;       // what is left out together to see what the figures are worth: "all_gather of 8"
};
struct MeasuredCollectives {
    std::vector<topologies::ClusterSpec> clusters;
    std::vector<MeasuredCollective> rows;
};

struct FittedFigure {
    std::string key;  // as in files: "base_us", "ring node" (the share within the node)
    double before = 0, after = 0;
    std::size_t rows = 0;  // that it moves
    bool held = false;     // too few rows: left as it was
};
struct NcclFit {
    std::vector<FittedFigure> figures;
    /// Of each row predicted / measured - 1: by the figures as they were, by the fitted ones, and by figures fitted
    /// without the row's part; empty where there is one part only.
    std::vector<double> before, after, left_out;
};

/// Whose figures are fitted: those of the clusters' device, which must be one, or those of their NIC.
enum class FitTarget : std::uint8_t { device, network };

/// Throws InputError when the device or NIC has no figures to begin with, or fewer than kFewestRows rows are given.
[[nodiscard]] NcclFit fit_nccl(MeasuredCollectives measured, FitTarget target);

}  // namespace orrery::sim
