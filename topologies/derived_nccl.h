// NCCL's figures for devices whose collectives were not measured, derived from the measured devices (docs/network.md).
#pragma once

#include <optional>

#include "topologies/cluster_spec.h"

namespace orrery::topologies {

/// Derived from the catalogue's devices with fitted figures, excluding the cluster's own device. Empty on CPUs, below
/// compute capability 80, and if no measured device has the same kind of intra-node link (NVLink or PCIe). Every figure
/// is an assumption whose source states the rule.
[[nodiscard]] std::optional<NcclProfile> derived_nccl(const ClusterSpec& cluster);

}  // namespace orrery::topologies
