// How NCCL chooses: its own estimates of every algorithm and protocol (src/graph/tuning.cc), of which it takes the
// least. They decide what runs; how long that takes is another function (nccl_time.h) where measurements are at hand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/network/collectives.h"

namespace orrery::sim {

struct AlphaBeta {
    double latency_seconds = 0;
    double seconds_per_byte = 0;  // of the message size S
    [[nodiscard]] double seconds(std::int64_t bytes) const {
        return latency_seconds + static_cast<double>(bytes) * seconds_per_byte;
    }
};

/// A way to run a collective.
struct NcclWay {
    Algorithm algorithm = Algorithm::ring;
    NcclProtocol protocol = NcclProtocol::simple;
    bool operator==(const NcclWay&) const = default;
};

/// A chain of n - 1 steps from or to a root.
[[nodiscard]] inline bool is_chain(program::CommKind kind) {
    return kind == program::CommKind::broadcast || kind == program::CommKind::reduce;
}
[[nodiscard]] inline bool by_switches(Algorithm algorithm) {
    return algorithms::row_of(algorithm).manner.in_switches == algorithms::InSwitches::of_nodes;
}
[[nodiscard]] inline double microseconds(Picoseconds time) {
    return to_seconds(time) * 1e6;
}

/// What one member can pass to its ring neighbour: its port inside the node, or its node's share of the fabric.
[[nodiscard]] double ring_bandwidth(const GroupPlacement& placement);
/// Bytes a second that LL reaches at most on this generation of devices and hosts, by nodes.
[[nodiscard]] double low_latency_limit(const GroupPlacement& placement, const topologies::ClusterSpec& cluster);

/// Why the collective cannot be run this way on this group, in words; empty when it can.
[[nodiscard]] std::string impossible_because(NcclWay way, program::CommKind kind, const GroupPlacement& placement,
                                             const topologies::ClusterSpec& cluster, const CollectiveOptions& options);

/// NCCL's table for ring, tree and (options.algorithm or a device profile with NVLS) NVLS, NVLS tree and PAT. Where the
/// cluster has no figures, and the estimate is the time too, the links' latencies are added to each step. Broadcast and
/// reduce are a chain of n - 1 steps (the tuner counts one step, and says that it waits for a better model).
[[nodiscard]] AlphaBeta published_time(NcclWay way, program::CommKind kind, const GroupPlacement& placement,
                                       const topologies::ClusterSpec& cluster, const CollectiveOptions& options);
/// Every way that the options allow and the group can run, in NCCL's order. Throws InputError when there is none,
/// naming the option and the reason.
[[nodiscard]] std::vector<NcclWay> possible_ways(program::CommKind kind, const GroupPlacement& placement,
                                                 const topologies::ClusterSpec& cluster,
                                                 const CollectiveOptions& options);

/// A way that NCCL's tuner takes for messages of some size.
struct TakenWay {
    NcclWay way;
    std::int64_t most_bytes = 0;  // of powers of two the largest message for which it does
};
/// By NCCL's table, in its order. Throws as possible_ways does.
[[nodiscard]] std::vector<TakenWay> taken_ways(program::CommKind kind, const GroupPlacement& placement,
                                               const topologies::ClusterSpec& cluster,
                                               const CollectiveOptions& options);

}  // namespace orrery::sim
