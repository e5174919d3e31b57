// Chrome trace JSON, which ui.perfetto.dev and chrome://tracing open: one process a rank, one lane a stream.
#pragma once

#include <span>
#include <string>

#include "sim/program/program.h"
#include "sim/program/run_record.h"

namespace orrery::reports {

/// One record or several of the same Program: processes "predicted rank 0", "measured rank 0", … sorted by rank, so
/// that the makers of one rank lie under each other. Complete events from ready to end; their categories are the phase
/// and the TimePart ("forward,attention"), of computation that of its heaviest operator; `args` holds the key and the
/// exact picoseconds of ready, begin and end. Times are microseconds from the step's start, rounded down to whole
/// nanoseconds at both ends, which keeps lanes free of overlaps. Ranks without spans are left out; throws InputError
/// when none is left.
[[nodiscard]] std::string trace_json(const program::Program& program,
                                     std::span<const program::RunRecord* const> records);
[[nodiscard]] std::string trace_json(const program::Program& program, const program::RunRecord& record);
[[nodiscard]] std::string trace_json(const program::Program& program, const program::RunRecord& predicted,
                                     const program::RunRecord& measured);

}  // namespace orrery::reports
