// The parent of a job's mpirun: sees when a rank dies or hangs, ends what is left, and says who it was.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "exec/faults/rank_page.h"
#include "exec/training_progress.h"
#include "sim/program/program.h"

namespace orrery::exec {

struct Supervision {
    double timeout_s = 0;  // see exec/faults/diagnosis.h; 0: only the dead are found
    const program::Program* program = nullptr;
    /// When given, shows how far the training is. Empty: shows nothing any more.
    std::function<void(const std::optional<TrainingProgress>&)> show;
};

/// Runs mpirun's `command` (words[0] is a path) in a process group of its own and waits for it. The ranks write into
/// `pages`. Says on standard error what went wrong unless a rank has said it. Returns the job's exit code: mpirun's
/// where it is one of ours, kExitJobFailed for a rank that died or hung, 128 + the signal by which the user ended it.
/// Afterwards no process of the job is left. The user's first signal ends a training after the step that it is in, with
/// all that is written at the end of one; a second signal, a second later or more, ends the job at once, as the first
/// does before the first step or where there is no Program.
[[nodiscard]] int supervise(const std::vector<std::string>& command, JobPages& pages, const Supervision& options);

}  // namespace orrery::exec
