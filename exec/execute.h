// Runs a Program on all ranks of the job and gathers their measurements in one RunRecord.
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
    std::int64_t steps = 10;   // measured steps
    std::int64_t warm_up = 2;  // steps before them: their losses are recorded, their times are not
    bool record_spans = true;
    /// If given, the run is paced (exec/paced): instructions take these times, nothing is computed or sent, and there
    /// are no losses.
    const program::Durations* durations = nullptr;
    double timeout_s = 0;  // of the heartbeats between ranks that no launcher watches (transport/heartbeat.h); 0: none
    CheckpointOptions checkpoints;
    std::string gradients_path;  // if given, rank 0 writes the whole gradients of the last step there (gradients.h)
    bool on_cpu = false;         // run on this machine's cores, whatever the plan's cluster is made of
    bool deterministic = false;  // sum in the same order in every run (make_backend.h)
    /// If given, called on every rank after each step, with the rank's recorder.
    std::function<void(const FlightRecorder&)> on_step;
};

/// Collective over all ranks. The record is complete on rank 0 and empty on the other ranks. The Program must outlive
/// the Transport.
///
/// The time of step i runs from the completion of step i-1 to that of step i, where a step is complete when its last
/// rank is; the clocks of several machines are converted to rank 0's. The time of checkpoints is not counted. Spans and
/// stream times are those of the measured step whose time is nearest to the median.
///
/// SIGINT, SIGTERM or SIGHUP, sent to the launcher or to this process (exec/early_stop.h), ends the training after a
/// step. The record then covers the steps so far and has a note about it (FlightRecorder::has_stopped).
///
/// Throws JobError if a loss is not finite or a checkpoint cannot be written, InputError if there is no checkpoint to
/// resume from.
[[nodiscard]] program::RunRecord execute(const program::Program& program, Transport& transport,
                                         const ExecuteOptions& options);

}  // namespace orrery::exec
