// What a collective or a transfer costs on the links that its group really spans. docs/network.md has the formulas,
// the assumptions and where they are wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

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
    std::int64_t nic_sharers = 0;                   // most members that send through one NIC; 0: no NICs
    topologies::Distance worst = topologies::Distance::same_device;  // between neighbours of the ring
    /// One way between ring neighbours, the slowest such pair: inside a node, and between adjacent nodes of the ring.
    /// Bandwidths are per direction, of one member's port and of one NIC, times the links' efficiency. 0: no such pair.
    Picoseconds intra_latency, inter_latency;
    BytesPerSecond intra_bandwidth, inter_bandwidth;
    /// Of the pairs in which each member hands on to the next as the group lists them, and the last to the first: the
    /// most that leave or enter a node through one NIC, the slowest one's latency, and whether some stay inside a node.
    std::int64_t neighbour_nic_sharers = 0;
    Picoseconds neighbour_inter_latency;
    bool has_inner_neighbours = false;
    bool operator==(const GroupPlacement&) const = default;
};
struct GroupPlacementHash {
    [[nodiscard]] std::size_t operator()(const GroupPlacement& placement) const;
};

/// The members' devices in the group's order, which only an exchange depends on; a device may be named twice only where
/// ranks may share devices. The ring visits node by node in ascending order, enters and leaves a node on the same rail
/// where both nodes have a member on it, and closes. Throws BugError for an empty group, a device outside the cluster
/// or a forbidden duplicate.
[[nodiscard]] GroupPlacement place_group(const topologies::Cluster& cluster, std::span<const std::int64_t> devices);

struct CollectiveCost {
    Picoseconds latency;  // the part that does not depend on the size
    double seconds = 0;   // from the last member's start to the last member's end
    /// "ring", "tree", "chain" (broadcast, reduce), "direct" (whatever consists of sends), "measured" and "composed"
    /// (from local samples of the operation, or of others), "none" (one member)
    std::string algorithm;
    std::string detail;  // the protocol, or what the samples were scaled from
    /// What one member sends (and as much again it receives) through its port inside the node and through its own NIC;
    /// where members differ, the one that sends or receives most. Together, rounded up: 2(n-1)/n S for an all-reduce;
    /// (n-1)/n S for an all-gather, reduce-scatter or, with as many members on each node, all-to-all, scatter and
    /// gather (of these two the root's); S for a broadcast, reduce or send. An exchange: S each, where some pair uses
    /// it.
    std::int64_t intra_node_bytes = 0;
    std::int64_t nic_bytes = 0;
};

/// `bytes` is the message size S (program::CommKind). A group of one costs nothing; S = 0 still costs the latency.
/// Where ranks share the host's cores the time comes from cluster.transport_samples, of the operation or of what it can
/// be composed of (measured_model.h); throws InputError, which says to run `orrery calibrate`, when there are neither.
/// Between CPU nodes, and on one of several without samples, it is that of cluster.collective_library's algorithm on
/// idle links (algorithms/library_choice.h).
[[nodiscard]] CollectiveCost collective_cost(program::CommKind kind, std::int64_t bytes,
                                             const GroupPlacement& placement, const topologies::ClusterSpec& cluster);

/// One line for each kind of communication of the Program whose time had to be composed of other operations' samples;
/// sorted, without duplicates.
[[nodiscard]] std::vector<std::string> communication_notes(const program::Program& program,
                                                           const topologies::ClusterSpec& cluster);

}  // namespace orrery::sim
