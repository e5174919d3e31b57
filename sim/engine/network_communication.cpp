#include "sim/engine/network_communication.h"

#include "sim/network/collectives.h"
#include "sim/network/fabric_loads.h"
#include "sim/network/kernel_demand.h"

namespace orrery::sim {

std::vector<OperationCost> NetworkCommunication::costs(program::GroupAxis, std::span<const Operation> operations,
                                                       std::span<const std::int64_t> devices) const {
    const GroupPlacement placement = place_group(*cluster_, devices);
    std::vector<OperationCost> result;
    result.reserve(operations.size());
    for (const Operation& operation : operations) {
        const CollectiveCost cost = collective_cost(operation.kind, operation.bytes, placement, cluster_->spec());
        const KernelDemand kernel = kernel_demand(operation.kind, operation.bytes, cost, placement, cluster_->spec());
        result.push_back({picoseconds_from_seconds(cost.seconds), cost.intra_node_bytes, cost.nic_bytes,
                          kernel.compute_units, kernel.memory_bytes, algorithm_of(cost)});
    }
    return result;
}

std::vector<std::string> NetworkCommunication::notes(const program::Program& program) const {
    return communication_notes(program, cluster_->spec());
}

}  // namespace orrery::sim
