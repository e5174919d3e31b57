// The `orrery` command: reads arguments, runs the chosen command, and turns errors into messages and exit codes.
#pragma once

namespace orrery::cli {

/// Returns the exit code.
[[nodiscard]] int run_orrery(int argc, char** argv);

}  // namespace orrery::cli
