#include "sim/engine/network_communication.h"

#include "sim/network/collectives.h"
#include "sim/network/kernel_demand.h"
#include "sim/program/work_rates.h"

namespace orrery::sim {

std::vector<OperationCost> NetworkCommunication::costs(program::GroupAxis axis, std::span<const Operation> operations,
                                                       std::span<const std::int64_t> devices) const {
    const GroupPlacement placement = place_group(*cluster_, devices);
    std::vector<OperationCost> result;
    result.reserve(operations.size());
    for (const Operation& operation : operations) {
        const topologies::ClusterSpec& spec = cluster_->spec();
        const bool is_piece = program::is_piece(operation.kind, axis);
        const CollectiveCost cost = is_piece ? piece_cost(operation.bytes, placement, spec)
                                             : collective_cost(operation.kind, operation.bytes, placement, spec);
        const KernelDemand kernel = is_piece ? piece_demand(operation.bytes, cost, placement, spec)
                                             : kernel_demand(operation.kind, operation.bytes, cost, placement, spec);
        result.push_back({picoseconds_from_seconds(cost.seconds), cost.intra_node_bytes, cost.nic_bytes,
                          kernel.compute_units, kernel.memory_bytes, cost.algorithm});
    }
    return result;
}

std::vector<std::string> NetworkCommunication::notes(const program::Program& program) const {
    return communication_notes(program, cluster_->spec());
}

}  // namespace orrery::sim
