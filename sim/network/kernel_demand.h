// What the kernel of a communication takes of the device that it runs on, and so of the computation beside it.
#pragma once

#include <cstdint>

#include "sim/network/collectives.h"

namespace orrery::sim {

struct KernelDemand {
    /// Each channel is one block of threads, which has a compute unit to itself from the operation's start to its end,
    /// also while it waits for a link.
    double compute_units = 0;
    std::int64_t memory_bytes = 0;  // read and written in the device's memory, all together
};

/// By the figures of the device's profile (CollectiveKernels); without them nothing. Collectives take as many units as
/// their channels where these are known (CollectiveCost::channels), else compute_units, or compute_units_one_member
/// where each node has one member. Sends to another node take compute_units_send; inside a node, a unit for each 64 KiB
/// of a transfer, up to 32. Memory: memory_passes for each byte that a member sends, through port and NIC.
[[nodiscard]] KernelDemand kernel_demand(program::CommKind kind, std::int64_t bytes, const CollectiveCost& cost,
                                         const GroupPlacement& placement, const topologies::ClusterSpec& cluster);

/// Of piece_cost(): where copy engines move it, one unit, whose threads wait for the flag of what arrives (NeMo's and
/// TransformerEngine's num_sm of a ring_exchange), and each byte read once and written once.
[[nodiscard]] KernelDemand piece_demand(std::int64_t bytes, const CollectiveCost& cost, const GroupPlacement& placement,
                                        const topologies::ClusterSpec& cluster);

}  // namespace orrery::sim
