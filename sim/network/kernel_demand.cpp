#include "sim/network/kernel_demand.h"

#include <algorithm>
#include <cmath>

#include "sim/network/nccl_model.h"

namespace orrery::sim {
namespace {

using program::CommKind;

double units_inside(std::int64_t transfer_bytes, std::int64_t transfers) {
    const double each = std::ceil(static_cast<double>(transfer_bytes) / kTransferChannelBytes);
    return std::clamp(static_cast<double>(transfers) * each, 1.0, kTransferChannels);
}

double compute_units(CommKind kind, std::int64_t bytes, const CollectiveCost& cost, const GroupPlacement& placement,
                     const topologies::CollectiveKernels& kernels) {
    if (algorithms::is_transfer(kind)) {
        return placement.nodes == 1 ? units_inside(bytes, 1) : kernels.compute_units_send.value;
    }
    if (consists_of_transfers(kind)) {
        const GroupedTransfers transfers = grouped_transfers(kind, bytes, placement);
        double units = 0;
        if (transfers.port_transfers > 0) units = units_inside(transfers.message_bytes, transfers.port_transfers);
        if (transfers.nic_transfers > 0) {
            units += kernels.compute_units_send.value * static_cast<double>(transfers.nic_transfers);
        }
        return std::min(units, kTransferChannels);
    }
    if (cost.channels > 0) return static_cast<double>(cost.channels);
    return placement.max_members == 1 ? kernels.compute_units_one_member.value : kernels.compute_units.value;
}

}  // namespace

KernelDemand kernel_demand(CommKind kind, std::int64_t bytes, const CollectiveCost& cost,
                           const GroupPlacement& placement, const topologies::ClusterSpec& cluster) {
    if (!cluster.device.collective_kernels || placement.ranks == 1) return {};
    const topologies::CollectiveKernels& kernels = *cluster.device.collective_kernels;
    const double moved = static_cast<double>(cost.intra_node_bytes + cost.nic_bytes);
    return {compute_units(kind, bytes, cost, placement, kernels),
            static_cast<std::int64_t>(moved * kernels.memory_passes.value)};
}

KernelDemand piece_demand(std::int64_t bytes, const CollectiveCost& cost, const GroupPlacement& placement,
                          const topologies::ClusterSpec& cluster) {
    if (!copy_engines_move(placement, cluster)) {
        return kernel_demand(CommKind::exchange, bytes, cost, placement, cluster);
    }
    if (!cluster.device.collective_kernels) return {};
    return {1.0, 2 * cost.intra_node_bytes};
}

}  // namespace orrery::sim
