#include "sim/engine/network_communication.h"

#include "sim/network/operation.h"

namespace orrery::sim {

std::vector<OperationCost> NetworkCommunication::costs(program::GroupAxis axis, std::span<const Operation> operations,
                                                       std::span<const std::int64_t> devices) const {
    const GroupPlacement placement = place_group(*cluster_, devices);
    std::vector<OperationCost> result;
    result.reserve(operations.size());
    for (const Operation& operation : operations) {
        const OperationPrice price = price_of(operation, axis, placement, cluster_->spec());
        result.push_back({picoseconds_from_seconds(price.cost.seconds), price.cost.intra_node_bytes,
                          price.cost.nic_bytes, price.demand.compute_units, price.demand.memory_bytes,
                          price.cost.algorithm, price.loading_bytes});
    }
    return result;
}

std::vector<std::string> NetworkCommunication::notes(const program::Program& program) const {
    return communication_notes(program, cluster_->spec());
}

}  // namespace orrery::sim
