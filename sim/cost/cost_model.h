// Time of an instruction of one rank without contention: computation, copies to and from host memory, work of the host.
// Communication has its own interface in sim/engine, since its cost belongs to a group of ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/units.h"
#include "sim/program/program.h"
#include "sim/program/sensitivity.h"

namespace orrery::sim {

/// Position of an instruction in a Program. `action`, `segment` and `instruction` are indices as in program::Span.
struct InstructionContext {
    const program::Program& program;
    program::ClassIndex rank_class = 0;
    program::ActionIndex action = 0;
    program::SegmentIndex segment = 0;
    program::InstructionIndex instruction = 0;

    [[nodiscard]] const program::Action& action_here() const { return program.classes[rank_class].actions[action]; }
    [[nodiscard]] const program::SegmentList& segments_here() const {
        return program.classes[rank_class].segment_lists[action_here().segments];
    }
    [[nodiscard]] const program::Body& body_here() const { return program.bodies[segments_here()[segment].body]; }
    [[nodiscard]] const program::Instruction& instruction_here() const { return body_here().instructions[instruction]; }
};

/// Shares of the device that an instruction of the compute stream keeps busy at full speed.
struct DeviceShare {
    double compute_units = 0;  // with fewer units its speed falls in proportion
    double memory = 0;         // share of the effective memory bandwidth
};

struct InstructionCost {
    Picoseconds time{0};
    DeviceShare share;
};

/// One part of an instruction's time.
struct TimeTerm {
    program::WorkCell cell;
    double seconds = 0;
};

class CostModel {
  public:
    virtual ~CostModel() = default;
    /// Time of an instruction on a local stream (program::is_local) at full speed: device time on the compute stream,
    /// transfer time over the host link on the copy streams, and the host's own work (0 if it only waits) on the host
    /// stream. Excludes launch overhead. Never called for communication. Pure: equal arguments give equal results.
    [[nodiscard]] virtual Picoseconds instruction_time(const InstructionContext& where) const = 0;
    /// Appends the terms of instruction_time, which sum to it up to rounding. The default appends none: they are
    /// unknown.
    virtual void add_terms(const InstructionContext& /*where*/, std::vector<TimeTerm>& /*terms*/) const {}
    /// instruction_time and, on the compute stream of a device with compute units (DeviceProfile::compute_units), the
    /// share of the device it needs. The default share is zero, so contention never slows the instruction down.
    [[nodiscard]] virtual InstructionCost instruction_cost(const InstructionContext& where) const {
        return {instruction_time(where), {}};
    }
    /// False: the time depends only on the rank class, the body and the instruction, so it can be computed once for all
    /// uses of the body.
    [[nodiscard]] virtual bool depends_on_action() const = 0;
    /// One line for each assumed figure that this Program uses; sorted, without duplicates.
    [[nodiscard]] virtual std::vector<std::string> notes(const program::Program& program) const = 0;
};

}  // namespace orrery::sim
