#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "cli/commands.h"
#include "core/error.h"
#include "core/file.h"
#include "exec/data.h"
#include "exec/interpreter.h"

namespace orrery::cli {

void add_training_options(CLI::App& command, std::int64_t& steps, std::int64_t& warm_up, std::int64_t& timeout_s) {
    command.add_option("--steps", steps, "Steps to measure; their median counts")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
        ->capture_default_str();
    command.add_option("--warm-up", warm_up, "Steps before the first measured one")
        ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 20))
        ->capture_default_str();
    command
        .add_option("--timeout", timeout_s,
                    "Seconds without any progress after which a rank hangs and the job is ended; 0: never")
        ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 20))
        ->capture_default_str();
}

void print(const std::string& text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
        throw JobError("cannot write to standard output");
    }
}

void check_outputs(const std::vector<std::pair<std::string, std::string>>& outputs) {
    for (const auto& [option, path] : outputs) {
        if (path.empty()) continue;
        std::filesystem::path folder = std::filesystem::path(path).parent_path();
        if (folder.empty()) folder = ".";
        std::error_code ignored;
        if (std::filesystem::is_directory(path, ignored)) throw InputError(path, option, "a folder", "a file");
        if (!std::filesystem::is_directory(folder, ignored)) {
            throw InputError(path, option, "a file in a folder that does not exist", "a file in an existing folder");
        }
    }
}

void check_runnable(const program::Plan& plan, const std::string& plan_path) {
    exec::check_executable(plan, plan_path);
    try {
        const exec::TokenSource data(plan.training.data, plan.training.seed, plan.model.vocab,
                                     plan.training.sequence_length);
    } catch (const InputError& error) {
        throw InputError(plan_path + ": /training/data: " + error.what());
    }
}

program::Durations read_durations(const std::string& record_path, const program::Program& program, double stretch) {
    const program::RunRecord record =
        program::run_record_from_json_text(read_text_file(record_path), record_path, program);
    return program::durations_of(program, record, record_path, stretch);
}

CLI::Option* add_stretch_option(CLI::App& command, double& stretch) {
    return command.add_option("--stretch", stretch, "Make every duration of the record so many times as long")
        ->check(CLI::Range(1e-6, 1e6));
}

program::Program load_program(const std::string& plan_path, program::StepKind step) {
    const program::Plan plan = program::read_plan(plan_path);
    program::Program program = program::lower(plan, step);
    program::validate(program);
    return program;
}

}  // namespace orrery::cli
