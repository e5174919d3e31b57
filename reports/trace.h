// Chrome trace JSON for ui.perfetto.dev and chrome://tracing: one process per rank, one lane per stream.
#pragma once

#include <span>
#include <string>

#include "sim/program/program.h"
#include "sim/program/run_record.h"

namespace orrery::reports {

/// One or several records of the same Program. Processes ("predicted rank 0", "measured rank 0", ...) are sorted by
/// rank, so that prediction and measurement of a rank are adjacent. Events run from ready to end. Their categories are
/// the phase and the TimePart ("forward,attention"; for computation that of the heaviest operator), and `args` holds
/// the key and the exact picoseconds of ready, begin and end. Times are microseconds from the step's start; both ends
/// are rounded down to whole nanoseconds, so that events of a lane do not overlap. Ranks without spans are left out;
/// throws InputError when none remain.
[[nodiscard]] std::string trace_json(const program::Program& program,
                                     std::span<const program::RunRecord* const> records);
[[nodiscard]] std::string trace_json(const program::Program& program, const program::RunRecord& record);
[[nodiscard]] std::string trace_json(const program::Program& program, const program::RunRecord& predicted,
                                     const program::RunRecord& measured);

}  // namespace orrery::reports
