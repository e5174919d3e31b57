// What NCCL is taken to reach on a device whose collectives nobody measured, derived from the devices that were
// (docs/network.md).
#pragma once

#include <optional>

#include "topologies/cluster_spec.h"

namespace orrery::topologies {

/// By the catalogue's devices with fitted figures, the cluster's own left out. None on CPUs, before compute capability
/// 80, and where no measured device is joined as these are. Every figure is an assumption that names its rule.
[[nodiscard]] std::optional<NcclProfile> derived_nccl(const ClusterSpec& cluster);

}  // namespace orrery::topologies
