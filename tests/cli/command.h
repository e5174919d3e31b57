// Runs the built `orrery` (or mpirun with it) as a user would: another process, its output in files, its exit code.
#pragma once

#include <string>
#include <vector>

namespace orrery::test {

struct CommandResult {
    int exit_code = -1;  // of a process that ended by itself
    int signal = 0;      // else what ended it
    std::string out;
    std::string err;
};

struct CommandOptions {
    /// NAME=value sets a variable for the command, NAME alone removes it.
    std::vector<std::string> environment;
    /// The standard output has no reader: each write to it fails.
    bool output_closed = false;
    /// Both outputs are a terminal; what it was sent is the result's `out`.
    bool on_terminal = false;
    /// Both outputs go to the result's `out`, in the order in which they are written.
    bool together = false;
    std::string working_folder;
};

/// Runs words[0] (looked for in PATH) in a session of its own and waits. Whatever the session still runs ten seconds
/// after its leader has ended is killed and put in `orphans`, when given.
[[nodiscard]] CommandResult run_command(const std::vector<std::string>& words, const CommandOptions& options = {},
                                        std::vector<std::string>* orphans = nullptr);

/// The same with the built orrery in front, the path of which CMake compiles in.
[[nodiscard]] CommandResult orrery(const std::vector<std::string>& arguments, const CommandOptions& options = {},
                                   std::vector<std::string>* orphans = nullptr);
[[nodiscard]] std::string orrery_path();

/// Environment that Open MPI's mpirun needs in containers, as exec/launch sets it by itself.
[[nodiscard]] std::vector<std::string> mpirun_environment();

}  // namespace orrery::test
