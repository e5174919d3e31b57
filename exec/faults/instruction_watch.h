// Called by the interpreter at each instruction: records the place in the rank's page and injects faults.
#pragma once

#include <cstdint>
#include <optional>

#include "exec/faults/injection.h"
#include "exec/faults/recorder.h"
#include "sim/program/program.h"

namespace orrery::exec {

class InstructionWatch {
  public:
    /// Program and recorder must outlive this.
    InstructionWatch(const program::Program& program, std::int64_t rank, FlightRecorder& recorder)
        : program_(program),
          rank_class_(program.class_of(rank)),
          recorder_(recorder),
          fault_(fault_of_rank(static_cast<int>(rank))) {}

    /// Call it before the instruction. True if a fault requires that the rank's first parameter becomes NaN.
    [[nodiscard]] bool begin(std::int64_t step, InstructionPlace place, bool is_communication) {
        recorder_.begin(place);
        return fault_.has_value() && !is_communication && strike_if_due(step, place);
    }
    /// Call it after the instruction was computed or posted. A fault at a communication is injected here, while the
    /// communication is in flight.
    void end(std::int64_t step, InstructionPlace place, bool is_communication) {
        if (!is_communication) {
            recorder_.finish(place);
        } else if (fault_.has_value()) {
            (void)strike_if_due(step, place);
        }
    }

  private:
    bool strike_if_due(std::int64_t step, InstructionPlace place);

    const program::Program& program_;
    program::ClassIndex rank_class_ = 0;
    FlightRecorder& recorder_;
    std::optional<Fault> fault_;  // not injected yet
};

}  // namespace orrery::exec
