// The process between a job's supervisor and its ranks, which starts the ranks: mpirun, or without MPI one of ours.
#pragma once

#include <csignal>
#include <functional>
#include <string>
#include <vector>

namespace orrery::exec {

/// Whatever it is, it ends the other ranks when one fails or when it gets SIGTERM, and ends itself when all have ended:
/// with the exit code of the first rank that failed, or 128 + the signal that killed that rank.
struct Starter {
    std::string name;  // in messages
    /// Called in a child process, and never returns. It sets the signal mask `mask` for the ranks. The parent may have
    /// threads.
    std::function<void(const sigset_t& mask)> become;
};

/// A program such as mpirun. command[0] is its path.
[[nodiscard]] Starter starter_command(const std::string& name, std::vector<std::string> command);

/// The ranks that a starter of ours runs: copies of one program that differ in their environment.
struct RankProcesses {
    std::string program;                              // path
    std::vector<std::string> arguments;               // without the program
    std::vector<std::vector<std::string>> variables;  // by rank: all of its environment, NAME=value
    int file_of_rank_0 = -1;                          // a file descriptor that only rank 0 inherits; -1: none
};
[[nodiscard]] Starter starter_of(RankProcesses ranks);

}  // namespace orrery::exec
