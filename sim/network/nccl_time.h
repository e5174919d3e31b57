// How long a collective takes that NCCL runs in a given way, by the figures of a device's profile (NcclProfile) and of
// its network (NcclNetwork). docs/network.md has the formulas and what the figures were fitted on.
#pragma once

#include <cstdint>

#include "sim/network/nccl_tuner.h"

namespace orrery::sim {

/// Whether the cluster has the figures for this way.
[[nodiscard]] bool has_fitted_time(NcclWay way, const GroupPlacement& placement,
                                   const topologies::ClusterSpec& cluster);

/// All-reduce, all-gather, reduce-scatter, broadcast or reduce of S bytes; has_fitted_time.
[[nodiscard]] double fitted_seconds(NcclWay way, program::CommKind kind, std::int64_t bytes,
                                    const GroupPlacement& placement, const topologies::ClusterSpec& cluster,
                                    const CollectiveOptions& options);

/// Channels over which the message is spread.
[[nodiscard]] std::int64_t channels_used(NcclWay way, std::int64_t bytes, const GroupPlacement& placement,
                                         const topologies::ClusterSpec& cluster, const CollectiveOptions& options);

/// Bytes a second of one member's ring on this placement inside a node: its port's share in the narrowest part listed
/// that holds the members; over PCIe no more than the links carry.
[[nodiscard]] double fitted_ring_bandwidth(const GroupPlacement& placement, const topologies::ClusterSpec& cluster);

}  // namespace orrery::sim
