// Time of an NCCL collective with a given algorithm and protocol, from the figures of the device's profile
// (NcclProfile) and of its network (NcclNetwork). docs/network.md has the formulas and the measurements to which the
// figures were fitted.
#pragma once

#include <cstdint>

#include "sim/network/nccl_tuner.h"

namespace orrery::sim {

/// Whether the cluster has the figures for this algorithm and protocol.
[[nodiscard]] bool has_fitted_time(NcclWay way, const GroupPlacement& placement,
                                   const topologies::ClusterSpec& cluster);

/// Time of an all-reduce, all-gather, reduce-scatter, broadcast or reduce of S bytes. Requires has_fitted_time.
[[nodiscard]] double fitted_seconds(NcclWay way, program::CommKind kind, std::int64_t bytes,
                                    const GroupPlacement& placement, const topologies::ClusterSpec& cluster,
                                    const CollectiveOptions& options);

/// Number of channels over which the message is spread.
[[nodiscard]] std::int64_t channels_used(NcclWay way, std::int64_t bytes, const GroupPlacement& placement,
                                         const topologies::ClusterSpec& cluster, const CollectiveOptions& options);

/// Bandwidth of one member's ring inside a node, in bytes per second: the profile's share of the port for the narrowest
/// listed part that holds the members, and over PCIe at most what the links carry.
[[nodiscard]] double fitted_ring_bandwidth(const GroupPlacement& placement, const topologies::ClusterSpec& cluster);

}  // namespace orrery::sim
