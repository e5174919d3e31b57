// NCCL's own cost model of ring and tree, as its tuner evaluates it (src/graph/tuning.cc, v2.28.9), on our links; and
// what it builds of point-to-point transfers, which its tuner does not price.
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

/// all_reduce, all_gather, reduce_scatter, broadcast, reduce: the fastest of ring (for the last two a chain of n - 1
/// steps through which the whole message flows) and, for all-reduce, double binary tree, each in the protocols LL,
/// LL128 and Simple. At a tie the first in this order. The group has at least two members.
[[nodiscard]] AlphaBeta nccl_collective(program::CommKind kind, std::int64_t bytes, const GroupPlacement& placement,
                                        const topologies::ClusterSpec& cluster);

/// A send and its receive: one ring step in LL or Simple between two members.
[[nodiscard]] AlphaBeta nccl_transfer(std::int64_t bytes, const GroupPlacement& placement,
                                      const topologies::ClusterSpec& cluster);

/// Transfers that a group starts together, seen at the member that moves most in one direction.
struct GroupedTransfers {
    std::int64_t message_bytes = 0;   // the largest transfer
    std::int64_t port_transfers = 0;  // to members in its own node
    std::int64_t port_bytes = 0;      //   altogether
    std::int64_t nic_transfers = 0;   // to members on other nodes
    std::int64_t nic_bytes = 0;       //   altogether
    std::int64_t nic_sharers = 1;     // members that send as much through the same NIC
    Picoseconds inter_latency;        // of the slowest path between nodes
};
/// all_to_all, scatter, gather and exchange as NCCL's users write them, with grouped sends and receives. Of members
/// that differ, the worst: as root of a scatter or gather either a member of the fullest node or one of the emptiest.
[[nodiscard]] GroupedTransfers grouped_transfers(program::CommKind kind, std::int64_t bytes,
                                                 const GroupPlacement& placement);

struct TransferTime {
    double latency_seconds = 0;  // at S = 0
    double seconds = 0;
    const char* protocol = "";
};
/// Base + max(port, NIC), since both proceed together:
///   port  one step's latency + bytes / (bandwidth, in Simple 0.85 of it)
///   NIC   one step's latency + max(bytes * sharers / bandwidth, (transfers - 1) * network overhead)
/// in Simple, or in LL when that is faster and a transfer has at most 16 KiB (NCCL_P2P_LL_THRESHOLD). Inside a node all
/// transfers of a group wait for their peers at once, each on channels of its own; those that leave it are handed to
/// the network by one thread, one after the other.
[[nodiscard]] TransferTime nccl_grouped(const GroupedTransfers& transfers, const GroupPlacement& placement,
                                        const topologies::ClusterSpec& cluster);

}  // namespace orrery::sim
