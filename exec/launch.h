// Starting a job's ranks on this machine.
#pragma once

#include <string>
#include <vector>

namespace orrery::exec {

/// True when this process is one rank of a job that mpirun, srun or another PMI launcher started.
[[nodiscard]] bool under_launcher();

/// True when one process of this user may copy straight from the memory of another, its sibling. Containers often
/// forbid it; then Open MPI must be told, or it warns and fails on large messages. Tried with two short-lived
/// processes.
[[nodiscard]] bool single_copy_allowed();

/// What relaunch_under_mpirun runs, apart from the environment: mpirun's arguments, then the program and its own.
[[nodiscard]] std::vector<std::string> mpirun_command(const std::string& mpirun, int ranks, const std::string& program,
                                                      const std::vector<std::string>& arguments);

/// Replaces this process by mpirun with `ranks` copies of this executable, each given `arguments` (argv without its
/// first). Settings of Open MPI that the user has in the environment stay as they are. Throws InputError when there is
/// no mpirun in PATH, JobError when it cannot be run.
[[noreturn]] void relaunch_under_mpirun(int ranks, const std::vector<std::string>& arguments);

}  // namespace orrery::exec
