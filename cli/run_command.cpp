#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.h"
#include "core/error.h"
#include "core/file.h"
#include "exec/execute.h"
#include "exec/interpreter.h"
#include "exec/launch.h"
#include "exec/transport/transport.h"
#include "reports/summary.h"
#include "reports/trace.h"

namespace orrery::cli {
namespace {

struct RunOptions {
    std::string plan, trace, record, gradients;
    std::int64_t steps = 10, warm_up = 2;
    bool json = false, quiet = false;
};

std::vector<std::string> arguments_of(const RunOptions& options) {
    std::vector<std::string> arguments{
        "run", options.plan, "--steps", std::to_string(options.steps), "--warm-up", std::to_string(options.warm_up)};
    const auto pass = [&](const char* flag, const std::string& value) {
        if (!value.empty()) arguments.insert(arguments.end(), {flag, value});
    };
    pass("--trace", options.trace);
    pass("--record", options.record);
    pass("--gradients", options.gradients);
    if (options.json) arguments.emplace_back("--json");
    if (options.quiet) arguments.emplace_back("--quiet");
    return arguments;
}

std::string loss_lines(const program::RunRecord& record) {
    std::string text = "loss by step:";
    for (const double loss : record.losses) text += fmt::format(" {:.6f}", loss);
    return text + "\n";
}

void report(const RunOptions& options, const program::Program& program, const program::RunRecord& record) {
    if (!options.trace.empty()) write_file_atomically(options.trace, reports::trace_json(program, record));
    const std::string json = program::to_json_text(record, program);
    if (!options.record.empty()) write_file_atomically(options.record, json);
    if (options.quiet) return;
    print(options.json ? json : reports::summary_text(program, record) + loss_lines(record));
}

int run_rank(const RunOptions& options, const program::Program& program) {
    exec::Transport transport;
    try {
        const program::RunRecord record =
            exec::execute(program, transport,
                          {.steps = options.steps,
                           .warm_up = options.warm_up,
                           .record_spans = !options.trace.empty() || !options.record.empty(),
                           .gradients_path = options.gradients});
        if (transport.rank() == 0) report(options, program, record);
    } catch (const InputError& error) {
        transport.abort(kExitInputWrong, error.what());
    } catch (const JobError& error) {
        transport.abort(kExitJobFailed, fmt::format("rank {}: {}", transport.rank(), error.what()));
    } catch (const std::exception& error) {
        transport.abort(kExitBug, fmt::format("rank {}: this is a bug of ours: {}", transport.rank(), error.what()));
    }
    return kExitDone;
}

int run_run(const RunOptions& options) {
    const program::Program program = load_program(options.plan);
    if (exec::under_launcher()) return run_rank(options, program);
    check_runnable(*program.plan, options.plan);
    check_outputs({{"--trace", options.trace}, {"--record", options.record}, {"--gradients", options.gradients}});
    if (program.world_size() > 1) {
        exec::relaunch_under_mpirun(static_cast<int>(program.world_size()), arguments_of(options));
    }
    return run_rank(options, program);
}

}  // namespace

void add_run(CLI::App& app, Action& chosen) {
    auto options = std::make_shared<RunOptions>();
    CLI::App* command = app.add_subcommand("run", "Train by a plan for real, on this machine or under mpirun/srun");
    command->add_option("plan", options->plan, "Plan file (orrery plan --output)")->required();
    command->add_option("--steps", options->steps, "Steps to measure")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
        ->capture_default_str();
    command->add_option("--warm-up", options->warm_up, "Steps before the first measured one")
        ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 20))
        ->capture_default_str();
    command->add_option("--trace", options->trace, "Write a Chrome/Perfetto trace of the median step");
    command->add_option("--record", options->record, "Write the orrery.run_record/1 with every instruction");
    command->add_option("--gradients", options->gradients,
                        "Write the last step's whole gradients (orrery.gradients/1)");
    command->add_flag("--json", options->json, "Print orrery.run_record/1 JSON");
    command->add_flag("--quiet", options->quiet, "Print nothing");
    command->footer("Example: orrery run examples/gpt2-dp2.plan.json --steps 5");
    command->callback([options, &chosen] { chosen = [options] { return run_run(*options); }; });
}

}  // namespace orrery::cli
