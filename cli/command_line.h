// The whole command line: the list of commands, and checks that CLI11 does not make.
#pragma once

#include <string>

#include "cli/commands.h"

namespace orrery::cli {

/// Adds the application's name, version and footer, and every command. Parsing only sets `chosen` and runs nothing.
void add_commands(CLI::App& app, Action& chosen);

/// The error message for the first unknown word, or "" if all are known. CLI11 itself would report a missing argument
/// instead.
[[nodiscard]] std::string about_unknown_word(const CLI::App& app);

/// Refuses values that CLI11 accepts: empty ones, which would silently count as absent, and numbers that it misreads.
void check_values(const CLI::App& app);

}  // namespace orrery::cli
