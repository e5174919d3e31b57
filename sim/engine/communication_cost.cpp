#include "sim/engine/communication_cost.h"

namespace orrery::sim {

std::vector<OperationCost> TableCommunication::costs(program::GroupAxis axis, std::span<const Operation> operations,
                                                     std::span<const std::int64_t>) const {
    std::vector<OperationCost> result;
    result.reserve(operations.size());
    for (const Operation& operation : operations) {
        const auto entry = durations_.find({axis, operation.kind});
        result.push_back({entry == durations_.end() ? Picoseconds(0) : entry->second, 0, 0});
    }
    return result;
}

}  // namespace orrery::sim
