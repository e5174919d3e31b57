// A test double of the network.
#pragma once

#include <map>
#include <utility>

#include "sim/engine/communication_cost.h"

namespace orrery::sim {

/// One duration for each (axis, kind), 0 if the table has none. No load on links or devices.
class TableCommunication final : public CommunicationCost {
  public:
    using Table = std::map<std::pair<program::GroupAxis, program::CommKind>, Picoseconds>;
    TableCommunication() = default;
    explicit TableCommunication(Table durations) : durations_(std::move(durations)) {}
    [[nodiscard]] std::vector<OperationCost> costs(program::GroupAxis axis, std::span<const Operation> operations,
                                                   std::span<const std::int64_t>) const override {
        std::vector<OperationCost> result;
        for (const Operation& operation : operations) {
            const auto entry = durations_.find({axis, operation.kind});
            result.push_back({.duration = entry == durations_.end() ? Picoseconds(0) : entry->second});
        }
        return result;
    }

  private:
    Table durations_;
};

}  // namespace orrery::sim
