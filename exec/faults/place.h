// Where a rank stands in its Program, in words.
#pragma once

#include <string>

#include "exec/faults/rank_page.h"
#include "sim/program/program.h"
#include "sim/program/run_record.h"

namespace orrery::exec {

/// The span of the instruction there, without times.
[[nodiscard]] program::Span span_at(const InstructionPlace& place);

/// "step 3, last finished layers.0/forward/c0/mb1/mlp.down, next layers.0/forward/c0/mb1/mlp.add, waits for
/// layers.0/forward/c0/mb1/tp.reduce.2 of ranks 0 1". Last and next are those that the rank computes or issues in
/// order; what it waits for are messages of an earlier one. Without an instruction the stage says where it is: "while
/// it started".
[[nodiscard]] std::string describe_place(const program::Program& program, std::int64_t rank, const RankSnapshot& at);

/// In short, for a rank that is not to blame: "step 3, waits for … of ranks 0 1", "step 3, at …".
[[nodiscard]] std::string describe_bystander(const program::Program& program, std::int64_t rank,
                                             const RankSnapshot& at);

/// The same for a job without a Program, of which only stage and streams are known.
[[nodiscard]] std::string describe_stage(const RankSnapshot& at);

}  // namespace orrery::exec
