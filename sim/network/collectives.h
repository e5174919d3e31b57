// What a collective or a transfer costs on the links that its group really spans. docs/network.md has the formulas,
// the assumptions and where they are wrong.
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

/// Everything about where a group's members sit that its communication depends on. Two groups with equal placements
/// have equal costs.
struct GroupPlacement {
    std::int64_t ranks = 0;
    std::int64_t nodes = 0;
    std::int64_t min_members = 0, max_members = 0;  // per node, over the nodes that hold any
    std::int64_t min_nics = 0;                      // distinct NICs of the members in a node, the fewest; 0: no NICs
    topologies::NodePart within{};                  // the narrowest part that holds the members of a node
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
    /// Of the members in a node, on more than one rail, each sends to another node through the NIC on the receiver's
    /// rail, to which a member there forwards it (PXN).
    bool forwards = false;
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

using algorithms::Algorithm;

enum class NcclProtocol : std::uint8_t { ll, ll128, simple };
[[nodiscard]] std::string_view name_of(NcclProtocol protocol);

/// What a graph file gives an algorithm (given_channels.h).
struct GivenChannels {
    Algorithm algorithm = Algorithm::ring;
    std::int64_t channels = 0;    // 0: NCCL cannot run it
    double bytes_per_s_each = 0;  // as NCCL's tuner weighs them: inside the node for up to two nodes, else between
    bool operator==(const GivenChannels&) const = default;
};

/// How NCCL is to run a collective; by default as it chooses itself.
struct CollectiveOptions {
    std::optional<Algorithm> algorithm;  // one of NCCL's (algorithms::OfNccl)
    std::optional<NcclProtocol> protocol;
    std::int64_t channels = 0;           // 0: as many as NCCL takes
    std::optional<DType> dtype;          // of the elements; unset: one that switches can reduce (floating-point)
    bool nvls = true;                    // switches may be used (NCCL_NVLS_ENABLE)
    bool sharp = false;                  // the fabric's switches reduce too
    std::int64_t nccl_version = 22'902;  // as NCCL_VERSION counts: 2.29.2
    /// By a graph file (NCCL_GRAPH_FILE); no algorithm twice.
    std::vector<GivenChannels> given_channels;
    bool operator==(const CollectiveOptions&) const = default;
};

/// Where a time comes from.
enum class TimeSource : std::uint8_t {
    none,      // one member
    nccl,      // NCCL's algorithms and protocols
    library,   // the algorithms of a library for CPU ranks
    measured,  // local samples of the operation
    composed,  // local samples of others
};

struct CollectiveCost {
    Picoseconds latency;  // of a message without bytes
    double seconds = 0;   // from the last member's start to the last member's end
    TimeSource source = TimeSource::none;
    /// Whose transfers it stands for: of NCCL's also chain (broadcast, reduce) and direct (whatever consists of sends).
    /// None: there are no transfers, or they are not known (measured times).
    std::optional<Algorithm> algorithm;
    std::string detail;         // the protocol, or what the samples were scaled from
    std::int64_t channels = 0;  // that the message is spread over; 0: not known
    /// What one member sends (and as much again it receives) through its port inside the node and through its own NIC;
    /// where members differ, the one that sends or receives most. Together, rounded up: 2(n-1)/n S for an all-reduce;
    /// (n-1)/n S for an all-gather, reduce-scatter or, with as many members on each node, all-to-all, scatter and
    /// gather (of these two the root's); S for a broadcast, reduce or send. An exchange: S each, where some pair uses
    /// it. What is forwarded to another rail's NIC passes the port besides. Where switches reduce (nvls, nvls_tree), a
    /// member sends its buffer and receives the sum of its share: it sends (m+1)/m S inside its node of m.
    std::int64_t intra_node_bytes = 0;
    std::int64_t nic_bytes = 0;

    /// As the library calls the algorithm ("tree" in NCCL), else "measured", "composed" or "none".
    [[nodiscard]] std::string_view algorithm_name() const;
};

/// `bytes` is the message size S (program::CommKind). A group of one costs nothing; S = 0 still costs the latency.
/// Where ranks share the host's cores the time comes from cluster.transport_samples, of the operation or of what it can
/// be composed of (measured_model.h); throws InputError, which says to run `orrery calibrate`, when there are neither.
/// Between CPU nodes, and on one of several without samples, it is that of cluster.collective_library's algorithm on
/// idle links (library_time.h).
/// Options that cannot be met (NVLS on PCIe, PAT for an all-reduce) are an InputError naming the option and the reason.
[[nodiscard]] CollectiveCost collective_cost(program::CommKind kind, std::int64_t bytes,
                                             const GroupPlacement& placement, const topologies::ClusterSpec& cluster,
                                             const CollectiveOptions& options = {});

/// Whether buffers that all members can write (TransformerEngine's user buffers, PyTorch's symmetric memory) may lie
/// between them: on GPUs of one node.
[[nodiscard]] bool copy_engines_move(const GroupPlacement& placement, const topologies::ClusterSpec& cluster);

/// An exchange of pieces that a tensor-parallel product is cut into, each of `bytes`, from every member to the next. On
/// GPUs of one node copy engines write them into the neighbour's buffer, without NCCL's channels and their filling:
/// some microseconds and the bytes over what the port's link reaches. Elsewhere collective_cost() of an exchange.
[[nodiscard]] CollectiveCost piece_cost(std::int64_t bytes, const GroupPlacement& placement,
                                        const topologies::ClusterSpec& cluster);

/// The cluster's notes, and one line for each kind of communication of the Program whose time had to be composed of
/// other operations' samples; sorted, without duplicates.
[[nodiscard]] std::vector<std::string> communication_notes(const program::Program& program,
                                                           const topologies::ClusterSpec& cluster);

}  // namespace orrery::sim
