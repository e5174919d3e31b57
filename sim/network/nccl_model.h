// NCCL's own cost model of ring and tree, as its tuner evaluates it (src/graph/tuning.cc, v2.28.9), on our links; and
// what it builds of point-to-point transfers, which its tuner does not price.
#pragma once

#include <cstdint>

#include "sim/network/collectives.h"

namespace orrery::sim {

/// The chosen way of a collective and its time.
struct NcclTime {
    double latency_seconds = 0;  // at S = 0
    double seconds = 0;
    Algorithm algorithm{};
    NcclProtocol protocol{};
    std::int64_t channels = 0;  // 0: not known
};

/// all_reduce, all_gather, reduce_scatter, broadcast, reduce, among at least two members. NCCL's tuner chooses among
/// the ways that the options leave, but the fastest is taken of a chain and where the network's plugin chooses; the
/// time is that of the device's figures for the chosen way (nccl_time.h) or, where it has none, NCCL's own estimate.
/// Without any figures: the least estimate of ring and tree.
[[nodiscard]] NcclTime nccl_collective(program::CommKind kind, std::int64_t bytes, const GroupPlacement& placement,
                                       const topologies::ClusterSpec& cluster, const CollectiveOptions& options);

/// A send and its receive: inside a node of a device with figures a grouped transfer (below), else one ring step in LL
/// or Simple between two members.
[[nodiscard]] NcclTime nccl_transfer(std::int64_t bytes, const GroupPlacement& placement,
                                     const topologies::ClusterSpec& cluster);

/// What a step of a kernel takes in Simple besides the latency of the links, by NCCL's published table: over NVLink
/// where the group lies in one node, else over the network.
[[nodiscard]] double nccl_step_seconds(const GroupPlacement& placement);

/// Whether NCCL's users write it with grouped sends and receives.
[[nodiscard]] bool consists_of_transfers(program::CommKind kind);

/// Sends over NVLink: channels of a device, and the bytes of a transfer for which another is opened.
inline constexpr double kTransferChannels = 32, kTransferChannelBytes = 65536;

/// Transfers that a group starts together, seen at the member that moves most in one direction.
struct GroupedTransfers {
    std::int64_t message_bytes = 0;   // the largest transfer
    std::int64_t port_transfers = 0;  // to members in its own node
    std::int64_t port_bytes = 0;      //   altogether
    std::int64_t nic_transfers = 0;   // to members on other nodes
    std::int64_t nic_bytes = 0;       //   altogether
    std::int64_t own_bytes = 0;       // that stay with the member itself
    std::int64_t nic_sharers = 1;     // members that send as much through the same NIC
    Picoseconds inter_latency;        // of the slowest path between nodes
};
/// all_to_all, scatter, gather and exchange as NCCL's users write them, with grouped sends and receives. Of members
/// that differ, the worst: as root of a scatter or gather either a member of the fullest node or one of the emptiest.
[[nodiscard]] GroupedTransfers grouped_transfers(program::CommKind kind, std::int64_t bytes,
                                                 const GroupPlacement& placement);

/// Base + max(port, NIC), since both proceed together:
///   port  one step's latency + bytes / (bandwidth, in Simple 0.85 of it)
///   NIC   one step's latency + max(bytes * sharers / bandwidth, (transfers - 1) * network overhead)
/// in Simple, or in LL when that is faster and a transfer has at most 16 KiB (NCCL_P2P_LL_THRESHOLD). Inside a node all
/// transfers of a group wait for their peers at once, each on channels of its own; those that leave it are handed to
/// the network by one thread, one after the other. With a device's figures the port's part is
///   (1 + log2 members) LL steps + min(largest transfer, 64 KiB) / one of 32 channels' share
///     + 1/4 min(bytes, the channels' first chunks) / bandwidth + bytes / bandwidth + copy of the own share
/// since NCCL opens a channel for every 64 KiB of a transfer, and chunks of 512 KiB fill the pipeline.
[[nodiscard]] NcclTime nccl_grouped(const GroupedTransfers& transfers, const GroupPlacement& placement,
                                    const topologies::ClusterSpec& cluster);

}  // namespace orrery::sim
