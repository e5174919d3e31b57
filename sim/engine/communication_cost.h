// How long a communication operation takes when it has its links to itself, and what it takes of them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/units.h"
#include "sim/network/algorithms/algorithm.h"
#include "sim/program/program.h"

namespace orrery::sim {

/// A collective, or a send together with its receive (kind is never recv).
struct Operation {
    program::CommKind kind{};
    std::int64_t bytes = 0;  // message size S, as program::Communication::bytes()
    auto operator<=>(const Operation&) const = default;
};

struct OperationCost {
    Picoseconds duration;
    // What one member pushes through its own attachments meanwhile; a send pushes out at the sender and in at the
    // receiver, a collective the same amount both ways at each member.
    std::int64_t port_bytes = 0;  // device <-> node switch
    std::int64_t nic_bytes = 0;   // NIC <-> fabric
    // What each member's device gives to it.
    double compute_units = 0;       // from start to end
    std::int64_t memory_bytes = 0;  // read and written meanwhile
    /// What its use of links follows from (fabric_use.h); none: it uses none.
    std::optional<algorithms::Algorithm> algorithm;
};

class CommunicationCost {
  public:
    virtual ~CommunicationCost() = default;
    /// Costs of several operations in one group on these devices, in the operations' order; for a send, the sender
    /// stands first. Groups whose devices lie alike (same nodes, rails and scalable units up to renaming) have equal
    /// costs. Pure.
    [[nodiscard]] virtual std::vector<OperationCost> costs(program::GroupAxis axis,
                                                           std::span<const Operation> operations,
                                                           std::span<const std::int64_t> devices) const = 0;
    /// What a reader of the times of this program should know about how they were found; one line each.
    [[nodiscard]] virtual std::vector<std::string> notes(const program::Program&) const { return {}; }
};

/// The network's twin for tests: one duration for each (axis, kind); what is not in the table takes no time. Nothing
/// is taken of any link.
class TableCommunication final : public CommunicationCost {
  public:
    using Table = std::map<std::pair<program::GroupAxis, program::CommKind>, Picoseconds>;
    TableCommunication() = default;
    explicit TableCommunication(Table durations) : durations_(std::move(durations)) {}
    [[nodiscard]] std::vector<OperationCost> costs(program::GroupAxis axis, std::span<const Operation> operations,
                                                   std::span<const std::int64_t> devices) const override;

  private:
    Table durations_;
};

}  // namespace orrery::sim
