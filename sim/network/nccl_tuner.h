// How NCCL chooses: it estimates every algorithm and protocol (src/graph/tuning.cc) and takes the fastest. The
// estimates decide what runs; where figures fitted to measurements exist, the time comes from nccl_time.h.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/network/collectives.h"

namespace orrery::sim {

struct AlphaBeta {
    double latency_seconds = 0;
    double seconds_per_byte = 0;  // per byte of the message size S
    [[nodiscard]] double seconds(std::int64_t bytes) const {
        return latency_seconds + static_cast<double>(bytes) * seconds_per_byte;
    }
};

/// An algorithm and protocol with which NCCL runs a collective.
struct NcclWay {
    Algorithm algorithm = Algorithm::ring;
    NcclProtocol protocol = NcclProtocol::simple;
    bool operator==(const NcclWay&) const = default;
};

/// NCCL's published latencies of a ring in microseconds: once per operation; per step over NVLink and between nodes, in
/// addition to the latency of the links; and the least that handing data to the network costs per step.
struct RingLatencies {
    double base_us, nvlink_us, network_us, network_overhead_us;
};
[[nodiscard]] constexpr RingLatencies ring_latencies(NcclProtocol protocol) {
    constexpr RingLatencies kLatencies[]{{6.6, 0.6, 2.7, 1.0}, {14.0, 1.9, 4.0, 1.0}, {8.4, 3.4, 14.0, 3.0}};
    return kLatencies[static_cast<std::size_t>(protocol)];
}
/// Shares of the ring's bandwidth. LL stores a flag with every 4 bytes of data, LL128 one in every 128 bytes, of which
/// 120 are data.
inline constexpr double kLlShare = 0.5, kLl128Share = 0.92;

/// Broadcast and reduce run as a chain of n - 1 steps from or to the root.
[[nodiscard]] inline bool is_chain(program::CommKind kind) {
    return kind == program::CommKind::broadcast || kind == program::CommKind::reduce;
}
[[nodiscard]] inline bool by_switches(Algorithm algorithm) {
    return algorithms::row_of(algorithm).manner.in_switches == algorithms::InSwitches::of_nodes;
}
[[nodiscard]] inline double microseconds(Picoseconds time) {
    return to_seconds(time) * 1e6;
}

/// Bandwidth to a ring neighbour: the narrower of the port inside the node and the node's NICs together.
[[nodiscard]] double ring_bandwidth(const GroupPlacement& placement);
/// The most that LL reaches on this generation of devices and hosts, in bytes per second; depends on the number of
/// nodes.
[[nodiscard]] double low_latency_limit(const GroupPlacement& placement, const topologies::ClusterSpec& cluster);

/// NCCL's published estimate for ring, tree, NVLS, NVLS tree and PAT. If the cluster has no NCCL figures, this estimate
/// is also the predicted time, and the latencies of the links are added to each step. Broadcast and reduce count as a
/// chain of n - 1 steps (NCCL's tuner counts one step, with a remark that it awaits a better model).
[[nodiscard]] AlphaBeta published_time(NcclWay way, program::CommKind kind, const GroupPlacement& placement,
                                       const topologies::ClusterSpec& cluster, const CollectiveOptions& options);
/// Every way that the options allow and the group can run, in NCCL's order. Throws InputError with the option and the
/// reason if there is none.
[[nodiscard]] std::vector<NcclWay> possible_ways(program::CommKind kind, const GroupPlacement& placement,
                                                 const topologies::ClusterSpec& cluster,
                                                 const CollectiveOptions& options);

/// A way that NCCL's tuner chooses for some message size.
struct TakenWay {
    NcclWay way;
    std::int64_t most_bytes = 0;  // the largest power of two of bytes for which it is chosen
};
/// All ways that NCCL's published estimates choose for some size, in NCCL's order. Throws like possible_ways.
[[nodiscard]] std::vector<TakenWay> taken_ways(program::CommKind kind, const GroupPlacement& placement,
                                               const topologies::ClusterSpec& cluster,
                                               const CollectiveOptions& options);

}  // namespace orrery::sim
