// The parent process of a job's starter: detects that a rank dies or hangs, ends the other ranks, and reports the
// culprit.
#pragma once

#include <functional>
#include <optional>

#include "exec/faults/rank_page.h"
#include "exec/faults/starter.h"
#include "exec/training_progress.h"
#include "sim/program/program.h"

namespace orrery::exec {

struct Supervision {
    double timeout_s = 0;  // see exec/faults/diagnosis.h; 0: hangs are not detected
    const program::Program* program = nullptr;
    /// If given, displays the progress of the training; an empty argument removes the display.
    std::function<void(const std::optional<TrainingProgress>&)> show;
};

/// Runs the starter in its own process group and waits for it. The ranks write to `pages`. When it returns, no process
/// of the job is left. Errors that no rank has reported are printed on standard error.
///
/// Returns the job's exit code: the starter's if it is one of ours, kExitJobFailed if a rank died or hung, or 128 + the
/// signal by which the user ended the job.
///
/// The user's first signal stops the training after the current step; results and checkpoints are then written as at
/// the regular end. Another signal at least a second later ends the job at once. The first signal ends the job at once
/// if no step has begun or there is no Program.
[[nodiscard]] int supervise(const Starter& starter, JobPages& pages, const Supervision& options);

}  // namespace orrery::exec
