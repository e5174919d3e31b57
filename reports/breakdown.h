// Where a step goes: each moment of a rank's compute stream is either computation of some kind or idle for one reason,
// so that the parts sum to the step.
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
/// A step is a period: the idle time before a rank's first computation is the one after its last. An idle interval
/// belongs to what released the instruction that ends it: the one that ended last of those it comes after, for as long
/// as that one ran; before that to what released that one, and so on back to the interval's begin. Of a transfer only
/// the time from begin to end counts as `pp`; its waiting for the neighbour is `bubble`. Whatever the host had not
/// issued yet is `host`.
struct Breakdown {
    PartTimes parts{};    // exposed time only; their sum is the step
    PartTimes waiting{};  // of the groups but pp: the part that a late member caused (ready to begin)
    PartTimes hidden{};   // of communication and copies: they ran (begin to end) while the rank computed
    PartTimes busy{};     // of communication and copies: all that they ran
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

/// Rounds the record's step time to picoseconds. Of a record whose steps are not periodic, what a rank did more than a
/// step before its last computation is left out.
///
/// Throws InputError when a rank's record lacks an instruction.
[[nodiscard]] StepBreakdown breakdown_of(const program::Program& program, const program::RunRecord& record,
                                         const PartTable& table);

}  // namespace orrery::reports
