// Times of NCCL's collectives, with the choices of its tuner (src/graph/tuning.cc, v2.28.9) on our links, and of
// operations built from point-to-point transfers, which its tuner does not estimate.
#pragma once

#include <cstdint>

#include "sim/network/collectives.h"

namespace orrery::sim {

/// How NCCL runs a collective, and the time it takes.
struct NcclTime {
    double latency_seconds = 0;  // at S = 0
    double seconds = 0;
    Algorithm algorithm{};
    NcclProtocol protocol{};
    std::int64_t channels = 0;  // 0: not known
};

/// all_reduce, all_gather, reduce_scatter, broadcast or reduce among at least two members. The algorithm and protocol
/// are NCCL's choice among those that the options allow; for chains, and where the network's plugin chooses, the
/// fastest. The time comes from the device's figures (nccl_time.h) or, without figures for this way, from NCCL's own
/// estimate. Without any NCCL figures for the device, the fastest by these estimates is taken (NVLS only on request).
[[nodiscard]] NcclTime nccl_collective(program::CommKind kind, std::int64_t bytes, const GroupPlacement& placement,
                                       const topologies::ClusterSpec& cluster, const CollectiveOptions& options);

/// A send and its receive: inside a node, for a device with figures, a grouped transfer (below), else one ring step
/// between two members, in LL or Simple, whichever is faster.
[[nodiscard]] NcclTime nccl_transfer(std::int64_t bytes, const GroupPlacement& placement,
                                     const topologies::ClusterSpec& cluster);

/// Time of a kernel's step in Simple in addition to the latency of the links, by NCCL's published table: over NVLink if
/// the group lies in one node, else over the network.
[[nodiscard]] double nccl_step_seconds(const GroupPlacement& placement);

/// Whether users of NCCL implement the operation with grouped sends and receives.
[[nodiscard]] bool consists_of_transfers(program::CommKind kind);

/// Sends over NVLink: the channels of a device, and the bytes of a transfer per channel.
inline constexpr double kTransferChannels = 32, kTransferChannelBytes = 65536;

/// The grouped transfers of the member that moves the most bytes in one direction.
struct GroupedTransfers {
    std::int64_t message_bytes = 0;   // the largest transfer
    std::int64_t port_transfers = 0;  // to members in its own node
    std::int64_t port_bytes = 0;      //   altogether
    std::int64_t nic_transfers = 0;   // to members on other nodes
    std::int64_t nic_bytes = 0;       //   altogether
    std::int64_t own_bytes = 0;       // that the member copies to itself
    std::int64_t nic_sharers = 1;     // members that send equally much through the same NIC
    Picoseconds inter_latency;        // slowest path between nodes
};
/// all_to_all, scatter, gather and exchange, as users of NCCL write them with grouped sends and receives. If nodes
/// differ in their number of members, port and NIC each take the worst case: the member of the fullest node for the
/// port, of the emptiest for the NIC.
[[nodiscard]] GroupedTransfers grouped_transfers(program::CommKind kind, std::int64_t bytes,
                                                 const GroupPlacement& placement);

/// Base + max(port, NIC), since both run concurrently:
///   port  one step's latency + bytes / (bandwidth, in Simple 0.85 of it)
///   NIC   one step's latency + max(bytes * sharers / bandwidth, (transfers - 1) * network overhead)
/// in Simple, or in LL if that is faster and a transfer has at most 16 KiB (NCCL_P2P_LL_THRESHOLD). Inside a node all
/// transfers of a group wait for their peers at the same time, each on its own channels. One thread hands the transfers
/// that leave the node to the network, one after the other. With a device's figures the port term is
///   (1 + log2 members) LL steps + min(largest transfer, 64 KiB) / one of 32 channels' share
///     + 1/4 min(bytes, the channels' first chunks) / bandwidth + bytes / bandwidth + copy of the own share
/// because NCCL opens a channel for every 64 KiB of a transfer, and the first chunks of 512 KiB fill the pipeline.
[[nodiscard]] NcclTime nccl_grouped(const GroupedTransfers& transfers, const GroupPlacement& placement,
                                    const topologies::ClusterSpec& cluster);

}  // namespace orrery::sim
