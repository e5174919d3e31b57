#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "cli/commands.h"
#include "core/error.h"
#include "core/file.h"
#include "exec/data.h"
#include "exec/executable.h"
#include "exec/interpreter.h"
#include "sim/planner/planner.h"

namespace orrery::cli {

void add_training_options(CLI::App& command, std::int64_t& steps, std::int64_t& warm_up, std::int64_t& timeout_s) {
    command.add_option("--steps", steps, "Measured steps; the median is reported")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
        ->capture_default_str();
    command.add_option("--warm-up", warm_up, "Steps before the first measured one")
        ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 20))
        ->capture_default_str();
    command
        .add_option("--timeout", timeout_s,
                    "Seconds without progress after which a rank counts as hung and the job is ended; 0: never")
        ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 20))
        ->capture_default_str();
}

void print(const std::string& text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
        throw JobError("cannot write to standard output");
    }
}

void say(const std::string& text) noexcept {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
}

namespace {

/// Whether two paths lead to the same file, which need not exist yet.
bool is_same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
    std::error_code failed;
    if (std::filesystem::equivalent(a, b, failed) && !failed) return true;
    const std::filesystem::path full_a = std::filesystem::weakly_canonical(a, failed);
    if (failed) return false;
    const std::filesystem::path full_b = std::filesystem::weakly_canonical(b, failed);
    return !failed && full_a == full_b;
}

/// Pipes and devices may be named more than once, since writing to them replaces nothing.
bool may_be_shared(const std::string& path) {
    std::error_code failed;
    const std::filesystem::file_status status = std::filesystem::status(path, failed);
    return !failed && std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
}

}  // namespace

void check_outputs(const NamedPaths& outputs, const NamedPaths& inputs) {
    NamedPaths taken;
    for (const auto& [what, path] : inputs) {
        if (!path.empty()) taken.emplace_back(what, path);
    }
    for (const auto& [option, path] : outputs) {
        if (path.empty()) continue;
        for (const auto& [what, other] : taken) {
            if (may_be_shared(path) || !is_same_file(path, other)) continue;
            throw InputError("command line", option, path, "a different file from that of " + what);
        }
        taken.emplace_back(option, path);
        std::filesystem::path folder = std::filesystem::path(path).parent_path();
        if (folder.empty()) folder = ".";
        std::error_code ignored;
        if (std::filesystem::is_directory(path, ignored)) throw InputError(path, option, "a folder", "a file");
        if (!std::filesystem::is_directory(folder, ignored)) {
            throw InputError(path, option, "a file in a folder that does not exist", "a file in an existing folder");
        }
        try {
            check_writable(path);
        } catch (const InputError& error) {
            throw InputError(std::string(option) + ": " + error.what());
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
    const program::RunRecord record = program::run_record_from_json_text(
        read_text_file(record_path, program::kLargestRunRecord), record_path, program);
    program::check_timed(record.environment, record_path);
    return program::durations_of(program, record, record_path, stretch);
}

CLI::Option* add_stretch_option(CLI::App& command, double& stretch) {
    return command.add_option("--stretch", stretch, "Multiply every duration of the record by this factor")
        ->check(CLI::Range(1e-6, 1e6));
}

void add_memory_margin_option(CLI::App& command, std::optional<double>& margin_gib) {
    command
        .add_option("--memory-margin", margin_gib,
                    "GiB of each device to leave free, beyond what its driver reserves (0.5 on GPUs)")
        ->check(CLI::Range(0.0, 1024.0));
}

void add_text_only_option(CLI::App& command, models::ModelParts& parts) {
    command.add_flag_callback(
        "--text-only", [&parts] { parts = models::ModelParts::text_only; },
        "From a file with image or audio towers, or with layers that predict further tokens, take the language model "
        "without them");
}

program::Plan plan_to_run(const program::Plan& plan, bool speaks) {
    std::vector<std::string> differs;
    program::Plan own = exec::for_executor(plan, differs);
    if (speaks && own.implementation.name != plan.implementation.name) {
        std::string keys;
        for (const std::string& key : differs) keys += (keys.empty() ? "" : ", ") + key;
        say("orrery: " + plan.name + " is for " + plan.implementation.name + " and is run by " +
            own.implementation.name + ", which differs in " + keys + "\n");
    }
    return own;
}

program::Program proven_program(const program::Plan& plan, program::StepKind step) {
    program::Program program = program::lower(plan, step);
    program::validate(program);
    return program;
}

void refuse_long_step(const program::Plan& plan, const std::string& source, const std::string& what) {
    if (!sim::shorter_steps(plan)) return;
    throw InputError(source, "/training/global_batch_size",
                     fmt::format("{} ({} micro-batches a step)", plan.training.global_batch_size, plan.micro_batches()),
                     fmt::format("with {} a step of at most {} instructions", what, sim::kMostInstructions));
}

}  // namespace orrery::cli
