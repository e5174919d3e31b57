// What an interpreter calls at each instruction: the rank's page says where it is, and a fault on purpose strikes.
#pragma once

#include <cstdint>
#include <optional>

#include "exec/faults/injection.h"
#include "exec/faults/recorder.h"
#include "sim/program/program.h"

namespace orrery::exec {

class InstructionWatch {
  public:
    /// Both outlive this.
    InstructionWatch(const program::Program& program, std::int64_t rank, FlightRecorder& recorder)
        : program_(program),
          rank_class_(program.class_of(rank)),
          recorder_(recorder),
          fault_(fault_of_rank(static_cast<int>(rank))) {}

    /// Before the instruction. True when a fault wants the rank's first parameter to become NaN.
    [[nodiscard]] bool begin(std::int64_t step, InstructionPlace place, bool is_communication) {
        recorder_.begin(place);
        return fault_.has_value() && !is_communication && strike_if_due(step, place);
    }
    /// After it was computed, or posted: a fault at a communication strikes when that is under way.
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
    std::optional<Fault> fault_;  // still to come
};

}  // namespace orrery::exec
