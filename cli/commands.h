// The commands of `orrery`. Each adds itself to the application and runs when it was chosen; the returned number is the
// exit code.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "sim/program/durations.h"
#include "sim/program/program.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
class Option;
}  // namespace CLI

namespace orrery::cli {

/// Set by the chosen command's callback, run by main inside its error handling.
using Action = std::function<int()>;

void add_plan(CLI::App& app, Action& chosen);
void add_simulate(CLI::App& app, Action& chosen);
void add_run(CLI::App& app, Action& chosen);
void add_validate(CLI::App& app, Action& chosen);
void add_calibrate(CLI::App& app, Action& chosen);
void add_models(CLI::App& app, Action& chosen);
void add_clusters(CLI::App& app, Action& chosen);
void add_topo(CLI::App& app, Action& chosen);
void add_collectives(CLI::App& app, Action& chosen);

/// --steps, --warm-up, and --timeout in seconds, of commands that train.
void add_training_options(CLI::App& command, std::int64_t& steps, std::int64_t& warm_up, std::int64_t& timeout_s);

/// Writes to standard output; a reader that went away is not an error of the job.
void print(const std::string& text);

/// Throws InputError naming the plan's file when it cannot be run for real: see exec::check_executable; its text file,
/// if it names one, is read for this.
void check_runnable(const program::Plan& plan, const std::string& plan_path);

/// Throws InputError when an option names an output that cannot be: a folder, or a file in a folder that does not
/// exist. Called before any work is spent on what would go there. Each (option, path); empty paths are left out.
void check_outputs(const std::vector<std::pair<std::string, std::string>>& outputs);

/// How long each instruction of the program takes by a record (a file of orrery.run_record/1); see
/// program::durations_of.
[[nodiscard]] program::Durations read_durations(const std::string& record_path, const program::Program& program,
                                                double stretch);
/// --stretch: the factor of read_durations.
CLI::Option* add_stretch_option(CLI::App& command, double& stretch);

/// Reads a plan file, lowers it and proves the Program well-formed.
[[nodiscard]] program::Program load_program(const std::string& plan_path,
                                            program::StepKind step = program::StepKind::steady);

}  // namespace orrery::cli
