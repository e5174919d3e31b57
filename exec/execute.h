// Runs a Program on all ranks of the job and gathers what they measured into one RunRecord.
#pragma once

#include <functional>
#include <string>

#include "exec/checkpoint/checkpoint.h"
#include "exec/transport/transport.h"
#include "sim/program/durations.h"
#include "sim/program/program.h"
#include "sim/program/run_record.h"

namespace orrery::exec {

struct ExecuteOptions {
    std::int64_t steps = 10;   // measured
    std::int64_t warm_up = 2;  // run before, with losses but not measured
    bool record_spans = true;
    /// When given, nothing is computed or moved and there are no losses: instructions take this long (exec/paced).
    const program::Durations* durations = nullptr;
    double timeout_s = 0;  // of heartbeats, where no launcher watches (transport/heartbeat.h); 0: none
    CheckpointOptions checkpoints;
    std::string gradients_path;  // when given, rank 0 writes the whole gradients of the last step there (gradients.h)
    bool on_cpu = false;         // on this machine's cores, whatever the plan's cluster is made of
    bool deterministic = false;  // sums in the same order run after run (make_backend.h)
    /// When given, called after each step, on every rank, with what the rank tells about itself.
    std::function<void(const FlightRecorder&)> on_step;
};

/// Collective over all ranks. The record is complete on rank 0; on the other ranks it is empty. Step i's time is from
/// the completion of step i-1 to that of step i, each the latest over the ranks (clocks of several machines are brought
/// to rank 0's); what a checkpoint took is part of neither. The Program outlives the Transport. Spans and stream times
/// are those of the measured step nearest to the median. SIGINT, SIGTERM or SIGHUP, of the launcher or of this process
/// (exec/early_stop.h), end the training after a step: of the steps so far the record holds what it would hold of all,
/// and a note says so (FlightRecorder::has_stopped). Throws JobError when a loss is not finite or a checkpoint
/// cannot be written, InputError when there is none to go on from.
[[nodiscard]] program::RunRecord execute(const program::Program& program, Transport& transport,
                                         const ExecuteOptions& options);

}  // namespace orrery::exec
