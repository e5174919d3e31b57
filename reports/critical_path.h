// Why a step takes as long as it does: the chain of instructions from its start to its end, as text and by part.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reports/time_part.h"
#include "sim/program/program.h"
#include "sim/program/run_record.h"

namespace orrery::reports {

/// A stretch of the chain, from_ps to to_ps of the record's time: from start_ps on the instruction itself runs; before
/// that it was held up.
struct PathElement {
    std::int32_t record = 0;  // index in RunRecord::ranks
    program::Span span;
    TimePart delay = TimePart::host;  // what it was held up by
    std::int64_t from_ps = 0, start_ps = 0, to_ps = 0;
};

/// Elements of one action on one rank that follow each other.
struct PathStretch {
    std::int64_t rank = 0;
    std::string stage;
    std::string action;  // label_of
    std::int64_t instructions = 0;
    std::int64_t from_ps = 0, to_ps = 0;
    PartTimes parts{};  // of to_ps - from_ps
};

struct CriticalPath {
    std::int64_t length_ps = 0;
    PartTimes parts{};  // their sum is length_ps
    std::vector<PathStretch> stretches;
};

/// The elements follow each other in time without a gap (else a BugError). What holds up the first one belongs to an
/// earlier step when its delay is `idle`; it is left out, and times count from where the first one runs.
[[nodiscard]] CriticalPath critical_path_of(const program::Program& program, const program::RunRecord& record,
                                            const PartTable& table, const std::vector<PathElement>& elements);

}  // namespace orrery::reports
