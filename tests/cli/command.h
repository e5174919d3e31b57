// Runs the built `orrery` (or mpirun with it) as a user would, in a separate process, and collects output and exit
// code.
#pragma once

#include <string>
#include <vector>

namespace orrery::test {

struct CommandResult {
    int exit_code = -1;  // -1: ended by a signal
    int signal = 0;      // 0: not ended by a signal
    std::string out;
    std::string err;
};

struct CommandOptions {
    /// NAME=value sets a variable for the command, NAME alone removes it.
    std::vector<std::string> environment;
    /// Standard output is a pipe without a reader, so each write fails.
    bool output_closed = false;
    /// Standard output and standard error are a terminal, whose content becomes `out`.
    bool on_terminal = false;
    /// Standard output and standard error both go to `out`, in the order of writing.
    bool together = false;
    std::string working_folder;
    /// For orrery(): another variant of the built command; "": the usual one.
    std::string program;
};

/// Runs words[0] (searched in PATH) in a session of its own and waits. Processes of the session that still run ten
/// seconds after its leader has ended are killed and listed in `orphans`, if given.
[[nodiscard]] CommandResult run_command(const std::vector<std::string>& words, const CommandOptions& options = {},
                                        std::vector<std::string>* orphans = nullptr);

/// The same for the built orrery, whose path CMake compiles in, or options.program.
[[nodiscard]] CommandResult orrery(const std::vector<std::string>& arguments, const CommandOptions& options = {},
                                   std::vector<std::string>* orphans = nullptr);
[[nodiscard]] std::string orrery_path();

/// The environment that Open MPI's mpirun needs in containers; exec/launch sets the same.
[[nodiscard]] std::vector<std::string> mpirun_environment();

}  // namespace orrery::test
