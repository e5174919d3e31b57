// The command line as a whole: which commands there are, and what the library lets pass and is wrong all the same.
#pragma once

#include <string>

#include "cli/commands.h"

namespace orrery::cli {

/// The application's name, version and footer, and every command. Parsing runs none: it sets `chosen`.
void add_commands(CLI::App& app, Action& chosen);

/// What to say about the first word that no command knows, or "": where CLI11 would name what is missing instead.
[[nodiscard]] std::string about_unknown_word(const CLI::App& app);

/// Refuses what the library lets pass: an option or a word without a value, which taken for absent would do silently
/// what nobody asked, and numbers that are read as others.
void check_values(const CLI::App& app);

}  // namespace orrery::cli
