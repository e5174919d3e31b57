// Cost of a collective or a transfer on the links that its group spans. docs/network.md has the formulas, the
// assumptions and their known errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/units.h"
#include "sim/network/algorithms/algorithm.h"
#include "sim/program/program.h"
#include "topologies/cluster.h"
#include "topologies/cluster_spec.h"

namespace orrery::sim {

/// Everything about the location of a group's members that affects its communication. Groups with equal placements have
/// equal costs.
struct GroupPlacement {
    std::int64_t ranks = 0;
    std::int64_t nodes = 0;
    std::int64_t min_members = 0, max_members = 0;  // per node with members
    std::int64_t min_nics = 0;                      // fewest distinct NICs that a node's members use; 0: no NICs
    topologies::NodePart within{};                  // the narrowest part of a node that holds its members
    std::int64_t nic_sharers = 0;                   // largest number of members that send through one NIC; 0: no NICs
    topologies::Distance worst = topologies::Distance::same_device;  // between neighbours of the ring
    /// The slowest pair of ring neighbours inside a node, and between adjacent nodes of the ring. Latencies are
    /// one-way. Bandwidths are those of one member's port and of one NIC, per direction, times the links' efficiency.
    /// 0: no such pair.
    Picoseconds intra_latency, inter_latency;
    BytesPerSecond intra_bandwidth, inter_bandwidth;
    /// Pairs of an exchange, in which each member sends to the next in the group's order and the last to the first: the
    /// largest number that leave or enter a node through one NIC, the latency of the slowest pair between nodes, and
    /// whether some pairs stay inside a node.
    std::int64_t neighbour_nic_sharers = 0;
    Picoseconds neighbour_inter_latency;
    bool has_inner_neighbours = false;
    /// Members of a node use several rails, and each sends to another node through the NIC on the receiver's rail, to
    /// which a member of its own node forwards the data (PXN).
    bool forwards = false;
    bool operator==(const GroupPlacement&) const = default;
};

struct GroupPlacementHash {
    [[nodiscard]] std::size_t operator()(const GroupPlacement& placement) const;
};

/// `devices` are the members' devices in the group's order, which matters only for an exchange. A device may occur
/// twice only where ranks may share devices. The ring visits the nodes in ascending order and closes; it crosses from
/// node to node on a common rail if both nodes have a member on one. Throws BugError for an empty group, a device
/// outside the cluster or a forbidden duplicate.
[[nodiscard]] GroupPlacement place_group(const topologies::Cluster& cluster, std::span<const std::int64_t> devices);

using algorithms::Algorithm;

enum class NcclProtocol : std::uint8_t { ll, ll128, simple };
[[nodiscard]] std::string_view name_of(NcclProtocol protocol);

/// Channels that a graph file gives an algorithm (given_channels.h).
struct GivenChannels {
    Algorithm algorithm = Algorithm::ring;
    std::int64_t channels = 0;  // 0: NCCL cannot run it
    /// As NCCL's tuner takes it: the speed inside the node for up to two nodes, else between nodes.
    double bytes_per_s_each = 0;
    bool operator==(const GivenChannels&) const = default;
};

/// How NCCL runs a collective; by default as it chooses itself.
struct CollectiveOptions {
    std::optional<Algorithm> algorithm;  // one of NCCL's (algorithms::OfNccl)
    std::optional<NcclProtocol> protocol;
    std::int64_t channels = 0;           // 0: NCCL's own number
    std::optional<DType> dtype;          // element type; unset: one that switches can reduce (floating-point)
    bool nvls = true;                    // node switches may reduce (NCCL_NVLS_ENABLE)
    bool sharp = false;                  // the fabric's switches reduce too
    std::int64_t nccl_version = 22'902;  // as NCCL_VERSION counts: 2.29.2
    /// From a graph file (NCCL_GRAPH_FILE); at most one entry per algorithm.
    std::vector<GivenChannels> given_channels;
    bool operator==(const CollectiveOptions&) const = default;
};

/// Where a predicted time comes from.
enum class TimeSource : std::uint8_t {
    none,      // a group of one member
    nccl,      // NCCL's algorithms and protocols
    library,   // the algorithms of a library for CPU ranks
    measured,  // local samples of the operation
    composed,  // local samples of other operations
};

struct CollectiveCost {
    Picoseconds latency;  // time at S = 0
    double seconds = 0;   // from the last member's start to the last member's end
    TimeSource source = TimeSource::none;
    /// The algorithm whose transfers it stands for. For NCCL also chain (broadcast, reduce) and direct (operations that
    /// consist of sends). Unset: no transfers, or unknown ones (measured times).
    std::optional<Algorithm> algorithm;
    std::string detail;         // the protocol, or what the samples were scaled from
    std::int64_t channels = 0;  // over which the message is spread; 0: not known
    /// Bytes that one member sends, and also receives, through its port inside the node and through its own NIC; if
    /// members differ, those of the one that sends or receives most. Their sum, rounded up, is 2(n-1)/n S for an
    /// all-reduce; (n-1)/n S for an all-gather, reduce-scatter and, with equally many members on each node, all-to-all,
    /// scatter and gather (the root's for the latter two); S for a broadcast, reduce or send. An exchange counts S for
    /// each of the two that some pair uses. Data forwarded to another rail's NIC also pass the port. With switches that
    /// reduce (nvls, nvls_tree) a member sends its buffer and its share of the sum, (m+1)/m S inside a node with m
    /// members.
    std::int64_t intra_node_bytes = 0;
    std::int64_t nic_bytes = 0;

    /// The library's name of the algorithm ("tree" in NCCL), else "measured", "composed" or "none".
    [[nodiscard]] std::string_view algorithm_name() const;
};

/// `bytes` is the message size S (program::CommKind). A group of one costs nothing; S = 0 still costs the latency. If
/// ranks share the host's cores, the time comes from cluster.transport_samples of the operation or of those that it is
/// composed of (measured_model.h); without either, throws InputError, which advises to run `orrery calibrate`. Between
/// CPU nodes, and on one of several nodes without samples, it is the time of cluster.collective_library's algorithm on
/// idle links (library_time.h). Throws InputError naming option and reason for options that cannot be met (NVLS on
/// PCIe, PAT for an all-reduce).
[[nodiscard]] CollectiveCost collective_cost(program::CommKind kind, std::int64_t bytes,
                                             const GroupPlacement& placement, const topologies::ClusterSpec& cluster,
                                             const CollectiveOptions& options = {});

/// Whether members can write each other's buffers through copy engines (TransformerEngine's user buffers, PyTorch's
/// symmetric memory): true for GPUs of one node.
[[nodiscard]] bool copy_engines_move(const GroupPlacement& placement, const topologies::ClusterSpec& cluster);

/// Cost of an exchange in which every member sends the next one a piece (of `bytes`) of a tensor-parallel GEMM. On GPUs
/// of one node copy engines write the pieces into the neighbour's buffer, without NCCL's channels: a few microseconds
/// plus bytes / port bandwidth. Elsewhere collective_cost() of an exchange.
[[nodiscard]] CollectiveCost piece_cost(std::int64_t bytes, const GroupPlacement& placement,
                                        const topologies::ClusterSpec& cluster);

/// The cluster's notes, a line if communication between CPU nodes is not measured, and a line for each kind of
/// communication of the Program whose time is composed of other operations' samples. Sorted, without duplicates.
[[nodiscard]] std::vector<std::string> communication_notes(const program::Program& program,
                                                           const topologies::ClusterSpec& cluster);

}  // namespace orrery::sim
