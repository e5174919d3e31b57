// NCCL's own cost model of ring and tree, as its tuner evaluates it (src/graph/tuning.cc, v2.28.9), on our links.
#pragma once

#include <cstdint>

#include "sim/network/collectives.h"

namespace orrery::sim {

struct AlphaBeta {
    double latency_seconds = 0;
    double seconds_per_byte = 0;  // of the message size S
    const char* algorithm = "";
    const char* protocol = "";
    [[nodiscard]] double seconds(std::int64_t bytes) const {
        return latency_seconds + static_cast<double>(bytes) * seconds_per_byte;
    }
};

/// The fastest of ring and, for all-reduce, double binary tree, each in the protocols LL, LL128 and Simple. At a tie
/// the first in this order. The group has at least two members.
[[nodiscard]] AlphaBeta nccl_collective(program::CommKind kind, std::int64_t bytes, const GroupPlacement& placement,
                                        const topologies::ClusterSpec& cluster);

/// A send and its receive: one ring step in LL or Simple between two members.
[[nodiscard]] AlphaBeta nccl_transfer(std::int64_t bytes, const GroupPlacement& placement,
                                      const topologies::ClusterSpec& cluster);

}  // namespace orrery::sim
