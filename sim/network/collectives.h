// What a collective or a transfer costs on the links that its group really spans. docs/network.md has the formulas,
// the assumptions and where they are wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/units.h"
#include "sim/program/program.h"
#include "topologies/cluster.h"
#include "topologies/cluster_spec.h"

namespace orrery::sim {

/// Everything about where a group's members sit that its communication depends on. Two groups with equal placements
/// have equal costs.
struct GroupPlacement {
    std::int64_t ranks = 0;
    std::int64_t nodes = 0;
    std::int64_t min_members = 0, max_members = 0;  // per node, over the nodes that hold any
    std::int64_t min_nics = 0;                      // distinct NICs of the members in a node, the fewest; 0: no NICs
    topologies::Distance worst = topologies::Distance::same_device;  // between neighbours of the ring
    /// One way between ring neighbours, the slowest such pair: inside a node, and between adjacent nodes of the ring.
    /// Bandwidths are per direction, of one member's port and of one NIC, times the links' efficiency. 0: no such pair.
    Picoseconds intra_latency, inter_latency;
    BytesPerSecond intra_bandwidth, inter_bandwidth;
    bool operator==(const GroupPlacement&) const = default;
};
struct GroupPlacementHash {
    [[nodiscard]] std::size_t operator()(const GroupPlacement& placement) const;
};

/// The members' devices, in any order; a device may be named twice only where ranks may share devices. The ring visits
/// node by node in ascending order, enters and leaves a node on the same rail where both nodes have a member on it, and
/// closes. Throws BugError for an empty group, a device outside the cluster or a forbidden duplicate.
[[nodiscard]] GroupPlacement place_group(const topologies::Cluster& cluster, std::span<const std::int64_t> devices);

struct CollectiveCost {
    Picoseconds latency;    // the part that does not depend on the size
    double seconds = 0;     // from the last member's start to the last member's end
    std::string algorithm;  // "ring", "tree", "direct" (send, recv), "measured" (local samples), "none" (one member)
    std::string detail;     // the protocol, or what the samples were scaled from
    /// What one member sends (and as much again it receives) through its port inside the node and through its own NIC.
    /// Together 2(n-1)/n S for an all-reduce, (n-1)/n S for an all-gather or reduce-scatter, S for a send, rounded up.
    std::int64_t intra_node_bytes = 0;
    std::int64_t nic_bytes = 0;
};

/// `bytes` is the message size S: all-reduce, send and recv: the buffer; all-gather and reduce-scatter: the total over
/// the ranks. A group of one costs nothing; S = 0 still costs the latency. Where ranks share the host's cores the time
/// comes from cluster.transport_samples; throws InputError, which says to run `orrery calibrate`, when there are none
/// for the operation.
[[nodiscard]] CollectiveCost collective_cost(program::CommKind kind, std::int64_t bytes,
                                             const GroupPlacement& placement, const topologies::ClusterSpec& cluster);

}  // namespace orrery::sim
