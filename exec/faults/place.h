// Describes where a rank is in its Program, for messages.
#pragma once

#include <string>

#include "exec/faults/rank_page.h"
#include "sim/program/program.h"
#include "sim/program/run_record.h"

namespace orrery::exec {

/// The span of the instruction there, without times.
[[nodiscard]] program::Span span_at(const InstructionPlace& place);

/// "step 3, last finished layers.0/forward/c0/mb1/mlp.down, next layers.0/forward/c0/mb1/mlp.add, waits for
/// layers.0/forward/c0/mb1/tp.reduce.2 of ranks 0 1". "last finished" and "next" are instructions in issue order;
/// "waits for" names a communication issued earlier. Outside of a step the text names the stage: "while it started".
[[nodiscard]] std::string describe_place(const program::Program& program, std::int64_t rank, const RankSnapshot& at);

/// A shorter text, for a rank that is not the culprit: "step 3, waits for … of ranks 0 1", "step 3, at …".
[[nodiscard]] std::string describe_bystander(const program::Program& program, std::int64_t rank,
                                             const RankSnapshot& at);

/// The stage alone, for a job without a Program: "in step 3".
[[nodiscard]] std::string describe_stage(const RankSnapshot& at);

}  // namespace orrery::exec
