// Device resources that a communication kernel takes from concurrent computation.
#pragma once

#include <cstdint>

#include "sim/network/collectives.h"

namespace orrery::sim {

struct KernelDemand {
    /// Each channel is one thread block, which occupies a compute unit from the operation's start to its end, even
    /// while it waits for a link.
    double compute_units = 0;
    std::int64_t memory_bytes = 0;  // bytes read plus bytes written in device memory
};

/// Demand by the figures of the device's profile (CollectiveKernels); zero without them. Collectives take one unit per
/// channel if CollectiveCost::channels is known, else compute_units, or compute_units_one_member if each node has one
/// member. Sends to another node take compute_units_send; sends inside a node take one unit per 64 KiB, at most 32.
/// Memory traffic is memory_passes bytes per byte that a member sends through port and NIC.
[[nodiscard]] KernelDemand kernel_demand(program::CommKind kind, std::int64_t bytes, const CollectiveCost& cost,
                                         const GroupPlacement& placement, const topologies::ClusterSpec& cluster);

/// Demand of a piece_cost() exchange. Where copy engines move the piece: one unit, whose threads wait for the arrival
/// flag (num_sm of a ring_exchange in NeMo and TransformerEngine), and each byte read once and written once.
[[nodiscard]] KernelDemand piece_demand(std::int64_t bytes, const CollectiveCost& cost, const GroupPlacement& placement,
                                        const topologies::ClusterSpec& cluster);

}  // namespace orrery::sim
