// Starts a job's ranks on this machine, and finds out how this process was started.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "exec/training_progress.h"
#include "sim/program/program.h"

namespace orrery::exec {

/// True if this process is one rank of a job that mpirun, srun or another PMI launcher started; in a build without MPI,
/// if RANK and WORLD_SIZE are set, or if it is one of several processes that cannot meet without MPI. False for a Slurm
/// batch script and for the only task of a step without PMI.
[[nodiscard]] bool under_launcher();

/// This process's rank as its launcher numbers it, known before MPI starts; -1 without a launcher.
[[nodiscard]] int launched_rank();
/// Whether launch_ranks started this process. If so, the launcher has already printed what concerns the whole job.
[[nodiscard]] bool launched_by_us();

/// An error message if this process is one of several tasks that srun started without PMI, or in a build without MPI
/// any launcher without RANK, so that they cannot find each other; "" otherwise. MPI's own message would fill a page.
[[nodiscard]] std::string why_tasks_cannot_meet();

/// This process's number among the tasks that srun or mpirun started; 0 without them.
[[nodiscard]] int task_number();

/// The path of a program, searched in PATH; "" if it is not there.
[[nodiscard]] std::string find_in_path(const std::string& program);

/// The path of the running executable.
[[nodiscard]] std::string own_path();

/// True if a process may read the memory of a sibling process (process_vm_readv). Containers often forbid it. Open MPI
/// must then be configured without it, or it warns and fails on large messages. Tested with two short-lived processes.
[[nodiscard]] bool single_copy_allowed();

/// The command that launch_ranks runs in builds with MPI, without the environment: mpirun with its arguments, the
/// program and the program's arguments.
[[nodiscard]] std::vector<std::string> mpirun_command(const std::string& mpirun, int ranks, const std::string& program,
                                                      const std::vector<std::string>& arguments);

/// Default time without progress after which a job counts as hung, in seconds.
inline constexpr int kDefaultTimeout_s = 30;

struct LaunchOptions {
    int ranks = 1;
    std::vector<std::string> arguments;         // argv without its first
    double timeout_s = kDefaultTimeout_s;       // time without progress after which the job counts as hung; 0: never
    const program::Program* program = nullptr;  // the Program of the ranks, to name instructions; null: they run none
    /// See Supervision::show. Needs `program`.
    std::function<void(const std::optional<TrainingProgress>&)> show;
};

/// Runs `ranks` copies of this executable on this machine, watches them and waits for their end.
/// exec/faults/supervisor.h describes the supervision and the exit code that is returned. Builds with MPI start them
/// with mpirun; Open MPI settings in the environment stay as they are. Throws InputError if there is no mpirun in PATH,
/// JobError if the ranks cannot be started.
[[nodiscard]] int launch_ranks(const LaunchOptions& options);

}  // namespace orrery::exec
