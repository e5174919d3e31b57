// What rings carry where NVLinks go from device to device.
#pragma once

#include <cstdint>
#include <span>

#include "topologies/cluster.h"

namespace orrery::sim {

/// Of the NVLinks among these devices of one node, what leaves the part of them that has least to the others: every
/// ring through all of them leaves each part once, so that together rings carry no more. NCCL's search packs rings as
/// tightly on a hybrid cube mesh. 0: some part has no NVLink to the others.
[[nodiscard]] BytesPerSecond mesh_ring_bandwidth(const topologies::Cluster& cluster,
                                                 std::span<const std::int64_t> devices);

}  // namespace orrery::sim
