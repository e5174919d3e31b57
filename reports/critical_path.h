// The critical path of a step: the chain of instructions from its start to its end, by action and by part.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reports/time_part.h"
#include "sim/program/program.h"
#include "sim/program/run_record.h"

namespace orrery::reports {

/// One instruction of the critical path, from from_ps to to_ps of the record's time. It runs from start_ps on; before
/// that it was delayed.
struct PathElement {
    std::int32_t record = 0;  // index in RunRecord::ranks
    program::Span span;
    TimePart delay = TimePart::host;  // the cause of its delay
    std::int64_t from_ps = 0, start_ps = 0, to_ps = 0;
};

/// Consecutive elements of one action on one rank.
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

/// The elements must follow each other without a gap (else a BugError). If the first element's delay is `idle`, it
/// belongs to an earlier step: it is left out, and times count from when the first element runs.
[[nodiscard]] CriticalPath critical_path_of(const program::Program& program, const program::RunRecord& record,
                                            const PartTable& table, const std::vector<PathElement>& elements);

}  // namespace orrery::reports
