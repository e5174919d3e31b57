// The action and instruction of a Program that a record's span refers to.
#pragma once

#include <string>

#include "sim/program/program.h"
#include "sim/program/run_record.h"

namespace orrery::reports {

/// References into the Program, which must outlive it.
struct SpanPlace {
    const program::Action& action;
    const program::Segment& segment;
    const program::Instruction& instruction;
    program::Phase phase{};
};

/// Throws std::out_of_range when the span refers to nothing in the Program (records are checked when they are read).
[[nodiscard]] SpanPlace place_of(const program::Program& program, program::ClassIndex rank_class,
                                 const program::Span& span);

/// "forward c0 mb3", "optimizer_step".
[[nodiscard]] std::string label_of(const program::Action& action);

}  // namespace orrery::reports
