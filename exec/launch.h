// Starting a job's ranks on this machine.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "exec/training_progress.h"
#include "sim/program/program.h"

namespace orrery::exec {

/// True when this process is one rank of a job that mpirun, srun or another PMI launcher started. A batch script of
/// Slurm is not, nor is the only task of a step without PMI.
[[nodiscard]] bool under_launcher();

/// This process's rank as its launcher has it, before MPI starts; -1 without a launcher.
[[nodiscard]] int launched_rank();
/// Whether launch_ranks started this process: what is true of the whole job was said before.
[[nodiscard]] bool launched_by_us();

/// What is wrong when this process is one of several tasks that srun started without the means to find each other; MPI
/// would end them with a page of its own. "" when all is well.
[[nodiscard]] std::string why_tasks_cannot_meet();

/// This process's number among the tasks that srun started; 0 without srun.
[[nodiscard]] int slurm_task();

/// Where the program of this name is, by PATH; "" when nowhere.
[[nodiscard]] std::string find_in_path(const std::string& program);

/// This very executable's path.
[[nodiscard]] std::string own_path();

/// True when one process of this user may copy straight from the memory of another, its sibling. Containers often
/// forbid it; then Open MPI must be told, or it warns and fails on large messages. Tried with two short-lived
/// processes.
[[nodiscard]] bool single_copy_allowed();

/// What launch_ranks runs, apart from the environment: mpirun's arguments, then the program and its own.
[[nodiscard]] std::vector<std::string> mpirun_command(const std::string& mpirun, int ranks, const std::string& program,
                                                      const std::vector<std::string>& arguments);

/// Seconds after which a job that stands still hangs, unless the user says otherwise.
inline constexpr int kDefaultTimeout_s = 30;

struct LaunchOptions {
    int ranks = 1;
    std::vector<std::string> arguments;         // argv without its first
    double timeout_s = kDefaultTimeout_s;       // after which a job that stands still hangs; 0: never
    const program::Program* program = nullptr;  // what the ranks run, to name instructions by; null: something else
    /// See Supervision::show. Only with a Program.
    std::function<void(const std::optional<TrainingProgress>&)> show;
};

/// Runs `ranks` copies of this executable under mpirun, watches them and waits for their end: exec/faults/supervisor.h
/// says what of, and what is returned. Settings of Open MPI that the user has in the environment stay as they are.
/// Throws InputError when there is no mpirun in PATH, JobError when it cannot be started.
[[nodiscard]] int launch_ranks(const LaunchOptions& options);

}  // namespace orrery::exec
