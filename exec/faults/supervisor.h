// The parent of a job's mpirun: sees when a rank dies or hangs, ends what is left, and says who it was.
#pragma once

#include <string>
#include <vector>

#include "exec/faults/rank_page.h"
#include "sim/program/program.h"

namespace orrery::exec {

struct Supervision {
    double timeout_s = 0;  // see exec/faults/diagnosis.h; 0: only the dead are found
    const program::Program* program = nullptr;
};

/// Runs mpirun's `command` (words[0] is a path) in a process group of its own and waits for it. The ranks write into
/// `pages`. Says on standard error what went wrong unless a rank has said it. Returns the job's exit code: mpirun's
/// where it is one of ours, kExitJobFailed for a rank that died or hung, 128 + the signal by which the user ended it.
/// Afterwards no process of the job is left.
[[nodiscard]] int supervise(const std::vector<std::string>& command, JobPages& pages, const Supervision& options);

}  // namespace orrery::exec
