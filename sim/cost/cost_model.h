// How long an instruction of one rank alone takes when it has its resources to itself: computation, copies to and from
// the host's memory, work of the host. Communication has its own interface in sim/engine, since its cost belongs to a
// group of ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/units.h"
#include "sim/program/program.h"
#include "sim/program/sensitivity.h"

namespace orrery::sim {

/// Where an instruction stands in a Program. `action`, `segment` and `instruction` are indices as in program::Span.
struct InstructionContext {
    const program::Program& program;
    std::int32_t rank_class = 0;
    std::int32_t action = 0;
    std::int32_t segment = 0;
    std::int32_t instruction = 0;

    [[nodiscard]] const program::Action& action_here() const {
        return program.classes[static_cast<std::size_t>(rank_class)].actions[static_cast<std::size_t>(action)];
    }
    [[nodiscard]] const std::vector<program::Segment>& segments_here() const {
        return program.classes[static_cast<std::size_t>(rank_class)]
            .segment_lists[static_cast<std::size_t>(action_here().segments)];
    }
    [[nodiscard]] const program::Body& body_here() const {
        return program.bodies[static_cast<std::size_t>(segments_here()[static_cast<std::size_t>(segment)].body)];
    }
    [[nodiscard]] const program::Instruction& instruction_here() const {
        return body_here().instructions[static_cast<std::size_t>(instruction)];
    }
};

/// What an instruction of the compute stream keeps busy of its device at full speed, as shares of the whole.
struct DeviceShare {
    double compute_units = 0;  // without so many its speed falls in proportion
    double memory = 0;         // of the bandwidth that is reached
};

struct InstructionCost {
    Picoseconds time{0};
    DeviceShare share;
};

/// Part of an instruction's time.
struct TimeTerm {
    program::WorkCell cell;
    double seconds = 0;
};

class CostModel {
  public:
    virtual ~CostModel() = default;
    /// Time of an instruction on a local stream (program::is_local) at full speed: on the compute stream what the
    /// device takes, on the copy streams what the link to the host's memory takes, on the host stream what the host
    /// itself works (0 where it only waits). Launching is not in it. Never asked for communication. Pure: the same
    /// question always has the same answer.
    [[nodiscard]] virtual Picoseconds instruction_time(const InstructionContext& where) const = 0;
    /// What the time consists of: together instruction_time up to its rounding. By default nothing is known of it.
    virtual void add_terms(const InstructionContext& /*where*/, std::vector<TimeTerm>& /*terms*/) const {}
    /// instruction_time, and on the compute stream of a device with units of its own (DeviceProfile::compute_units) the
    /// share that goes with it. By default it needs nothing of the device: then nothing can slow it down.
    [[nodiscard]] virtual InstructionCost instruction_cost(const InstructionContext& where) const {
        return {instruction_time(where), {}};
    }
    /// False: the answer depends only on the rank class, the body and the instruction, so that it may be asked once for
    /// all calls of the body.
    [[nodiscard]] virtual bool depends_on_action() const = 0;
    /// One line for each figure that this Program needs and that had to be assumed; sorted, without duplicates.
    [[nodiscard]] virtual std::vector<std::string> notes(const program::Program& program) const = 0;
};

}  // namespace orrery::sim
