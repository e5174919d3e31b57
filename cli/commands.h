// The commands of `orrery`. Each adds itself to the application and runs if it is chosen; its result is the exit code.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
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

/// Set by the chosen command's callback; main runs it inside its error handling.
using Action = std::function<int()>;

void add_plan(CLI::App& app, Action& chosen);
void add_scale(CLI::App& app, Action& chosen);
void add_capacity(CLI::App& app, Action& chosen);
void add_diff(CLI::App& app, Action& chosen);
void add_whatif(CLI::App& app, Action& chosen);
void add_merge(CLI::App& app, Action& chosen);
void add_report(CLI::App& app, Action& chosen);
void add_simulate(CLI::App& app, Action& chosen);
void add_run(CLI::App& app, Action& chosen);
void add_validate(CLI::App& app, Action& chosen);
void add_calibrate(CLI::App& app, Action& chosen);
void add_backends(CLI::App& app, Action& chosen);
void add_models(CLI::App& app, Action& chosen);
void add_implementations(CLI::App& app, Action& chosen);
void add_clusters(CLI::App& app, Action& chosen);
void add_topo(CLI::App& app, Action& chosen);
void add_collectives(CLI::App& app, Action& chosen);

/// Adds --steps, --warm-up, and --timeout in seconds, for commands that train.
void add_training_options(CLI::App& command, std::int64_t& steps, std::int64_t& warm_up, std::int64_t& timeout_s);

/// Writes to standard output. Throws JobError if that fails.
void print(const std::string& text);

/// Throws InputError naming the plan's file if it cannot be executed (exec::check_executable). Reads the plan's text
/// file, if it names one.
void check_runnable(const program::Plan& plan, const std::string& plan_path);

/// Options with their paths; empty paths are ignored.
using NamedPaths = std::vector<std::pair<std::string, std::string>>;
/// Throws InputError if an output is a folder, a file in a folder that does not exist or cannot be written to, one of
/// the inputs, or another output. Called before any work is done.
void check_outputs(const NamedPaths& outputs, const NamedPaths& inputs);

/// Writes to standard error; errors are ignored.
void say(const std::string& text) noexcept;

/// The duration of each instruction of the program from a record (a file of orrery.run_record/1); see
/// program::durations_of.
[[nodiscard]] program::Durations read_durations(const std::string& record_path, const program::Program& program,
                                                double stretch);
/// Adds --memory-margin, in GiB; see sim::memory_per_rank_bytes.
void add_memory_margin_option(CLI::App& command, std::optional<double>& margin_gib);
/// Adds --text-only; see models::load_model.
void add_text_only_option(CLI::App& command, models::ModelParts& parts);
/// Adds --stretch, the factor of read_durations.
CLI::Option* add_stretch_option(CLI::App& command, double& stretch);

/// The plan as the executor runs it (exec::for_executor). If the plan is for another implementation and `speaks` is
/// set, prints the differences in one line on standard error.
[[nodiscard]] program::Plan plan_to_run(const program::Plan& plan, bool speaks);

/// Throws InputError if the step is so long that it is extrapolated from shorter ones (sim::shorter_steps), which is
/// not possible for `what` ("--trace", "orrery run").
void refuse_long_step(const program::Plan& plan, const std::string& source, const std::string& what);

/// Lowers a plan and validates the Program.
[[nodiscard]] program::Program proven_program(const program::Plan& plan,
                                              program::StepKind step = program::StepKind::steady);
}  // namespace orrery::cli
