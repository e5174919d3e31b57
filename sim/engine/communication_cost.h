// Costs of communication operations: their duration without contention, and their demand on links and devices.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/units.h"
#include "sim/network/algorithms/algorithm.h"
#include "sim/network/operation.h"
#include "sim/program/program.h"

namespace orrery::sim {

using OperationIndex = Index<struct OperationTag>;  // among the different operations on an axis

struct OperationCost {
    Picoseconds duration;
    // Bytes that one member moves through its own port and NIC. A sender moves them out and a receiver in; a member of
    // a collective moves this amount in each direction.
    std::int64_t port_bytes = 0;  // device <-> node switch
    std::int64_t nic_bytes = 0;   // NIC <-> fabric
    // Demand on each member's device.
    double compute_units = 0;       // occupied from start to end
    std::int64_t memory_bytes = 0;  // read plus written
    /// Determines the load on shared links (fabric_use.h); nullopt: no load.
    std::optional<algorithms::Algorithm> algorithm;
    /// The message for which the algorithm's transfers are that load; unset: the operation's own.
    std::optional<std::int64_t> loading_bytes{};
};

class CommunicationCost {
  public:
    virtual ~CommunicationCost() = default;
    /// Costs of operations in one group on these devices, in the order of `operations`. For a send, the sender's device
    /// is the first. A pure function: groups with equivalent placements (the same nodes, rails and scalable units up to
    /// renaming) have equal costs.
    [[nodiscard]] virtual std::vector<OperationCost> costs(program::GroupAxis axis,
                                                           std::span<const Operation> operations,
                                                           std::span<const std::int64_t> devices) const = 0;
    /// Notes for the reader on how this Program's communication times were obtained; one line each.
    [[nodiscard]] virtual std::vector<std::string> notes(const program::Program&) const { return {}; }
};

}  // namespace orrery::sim
