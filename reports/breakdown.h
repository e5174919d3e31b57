// Where the time of a step goes: each moment of a rank's compute stream is either computation of some kind or idle for
// one reason, so that the parts sum to the step time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reports/time_part.h"
#include "sim/program/program.h"
#include "sim/program/run_record.h"

namespace orrery::reports {

/// One step of one rank, or the mean over ranks. Picoseconds.
///
/// A step is periodic: the idle time before a rank's first computation is the one after its last. An idle interval is
/// attributed backwards from the instruction that ends it. Its last part belongs to the predecessor that ended last,
/// for as long as that predecessor ran; the time before that belongs to the predecessor's own last predecessor, and so
/// on back to the interval's begin. A pipeline transfer counts as `pp` from begin to end; its wait for the neighbour is
/// `bubble`. Time before the host issued an instruction is `host`.
struct Breakdown {
    PartTimes parts{};    // exposed time only; their sum is the step time
    PartTimes waiting{};  // part of `parts` spent waiting for late members (ready to begin); not for pp
    PartTimes hidden{};   // communication and copies: time from begin to end that overlaps with computation
    PartTimes busy{};     // communication and copies: all time from begin to end
    [[nodiscard]] std::int64_t step_ps() const;
};

struct ClassBreakdown {
    program::ClassIndex rank_class = 0;
    std::string name;
    std::int64_t ranks = 0;
    Breakdown mean;  // over the class's ranks
};

struct StepBreakdown {
    Breakdown mean;  // over all ranks
    std::vector<ClassBreakdown> classes;
};

/// Rounds the record's step time to picoseconds. If the record's steps are not periodic, everything that a rank did
/// more than a step time before the end of its last computation is left out.
///
/// Throws InputError when a rank's record lacks an instruction.
[[nodiscard]] StepBreakdown breakdown_of(const program::Program& program, const program::RunRecord& record,
                                         const PartTable& table);

}  // namespace orrery::reports
