// Bandwidth of rings over NVLinks that connect devices directly, without switches.
#pragma once

#include <cstdint>
#include <span>

#include "topologies/cluster.h"

namespace orrery::sim {

/// Minimum cut of the NVLinks among these devices of one node. Every ring through all devices leaves each subset once,
/// so the rings together carry no more than the minimum cut. On a hybrid cube mesh NCCL's search finds rings that reach
/// it. 0: some subset has no NVLink to the others.
[[nodiscard]] BytesPerSecond mesh_ring_bandwidth(const topologies::Cluster& cluster,
                                                 std::span<const std::int64_t> devices);

}  // namespace orrery::sim
