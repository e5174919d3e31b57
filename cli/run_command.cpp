#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>

#include "cli/child.h"
#include "cli/commands.h"
#include "cli/progress_line.h"
#include "cli/same_plan.h"
#include "cli/slurm_job.h"
#include "core/error.h"
#include "core/file.h"
#include "exec/execute.h"
#include "exec/faults/injection.h"
#include "exec/interpreter.h"
#include "exec/launch.h"
#include "exec/make_backend.h"
#include "exec/transport/transport.h"
#include "reports/summary.h"
#include "reports/trace.h"

namespace orrery::cli {
namespace {

struct RunOptions {
    std::string plan, trace, record, gradients, paced;
    std::string checkpoint, resume;  // folders
    std::string backend;             // "cpu", "cuda" or, for that of the plan's cluster, ""
    std::int64_t steps = 10, warm_up = 2, timeout_s = exec::kDefaultTimeout_s, checkpoint_every = 0, keep = 2;
    double stretch = 1;
    bool json = false, quiet = false, emulated = false, deterministic = false, details = false;
    SlurmOptions slurm;

    [[nodiscard]] bool on_cpu() const { return backend == "cpu"; }
};

// How long the other tasks of srun wait while the first one prints the error, since srun may kill all tasks when one
// ends.
constexpr std::chrono::seconds kWaitForTheMessage{2};

std::vector<std::string> arguments_of(const RunOptions& options) {
    std::vector<std::string> arguments{
        "run", options.plan, "--steps", std::to_string(options.steps), "--warm-up", std::to_string(options.warm_up)};
    if (options.timeout_s != exec::kDefaultTimeout_s) {
        arguments.insert(arguments.end(), {"--timeout", std::to_string(options.timeout_s)});
    }
    const auto pass = [&](const char* flag, const std::string& value) {
        if (!value.empty()) arguments.insert(arguments.end(), {flag, value});
    };
    pass("--trace", options.trace);
    pass("--record", options.record);
    pass("--gradients", options.gradients);
    pass("--paced", options.paced);
    pass("--backend", options.backend);
    if (options.stretch != 1) pass("--stretch", fmt::format("{}", options.stretch));
    pass("--checkpoint", options.checkpoint);
    pass("--resume", options.resume);
    if (!options.checkpoint.empty()) {
        if (options.checkpoint_every > 0) pass("--checkpoint-every", std::to_string(options.checkpoint_every));
        pass("--keep", std::to_string(options.keep));
    }
    if (options.details) arguments.emplace_back("--details");
    if (options.json) arguments.emplace_back("--json");
    if (options.quiet) arguments.emplace_back("--quiet");
    if (options.emulated) arguments.emplace_back("--emulated");
    if (options.deterministic) arguments.emplace_back("--deterministic");
    return arguments;
}

exec::CheckpointOptions checkpoint_options(const RunOptions& options) {
    return {.plan_path = options.plan,
            .folder = options.checkpoint,
            .every = options.checkpoint_every,
            .keep = options.keep,
            .resume_folder = options.resume};
}

std::string loss_lines(const program::RunRecord& record) {
    if (record.losses.empty()) return "";
    std::string text = "loss by step:";
    if (record.first_step > 0) text = fmt::format("loss by step from step {}:", record.first_step);
    for (const double loss : record.losses) text += fmt::format(" {:.6f}", loss);
    return text + "\n";
}

void report(const RunOptions& options, const program::Program& program, const program::RunRecord& record) {
    if (!options.trace.empty()) write_file_atomically(options.trace, reports::trace_json(program, record));
    const std::string json = program::to_json_text(record, program);
    if (!options.record.empty()) write_file_atomically(options.record, json);
    if (options.quiet) return;
    const reports::Stages stages = options.details ? reports::Stages::each : reports::Stages::extremes;
    print(options.json ? json : reports::summary_text(program, record, stages) + loss_lines(record));
}

void check_results(const RunOptions& options, const program::Program& program) {
    check_outputs({{"--trace", options.trace}, {"--record", options.record}, {"--gradients", options.gradients}},
                  {{"the plan", options.plan}, {"--paced", options.paced}});
    exec::check_checkpoints(program, checkpoint_options(options));
}

/// The Program to run and, for paced runs, its durations.
struct Job {
    program::Program program;
    std::optional<program::Durations> durations;
};

/// A plan for CPU cores has nothing that a GPU could do.
void check_is_for_gpus(const RunOptions& options, const program::Plan& plan) {
    const char* flag = options.emulated ? "--emulated" : options.backend == "cuda" ? "--backend cuda" : nullptr;
    if (flag == nullptr || !plan.cluster.device.host_runs_compute) return;
    throw InputError(options.plan, "/cluster", plan.cluster.name, fmt::format("a cluster of GPUs with {}", flag));
}

Job load_job(const RunOptions& options, bool speaks) {
    const program::Plan plan = program::read_plan(options.plan);
    refuse_long_step(plan, options.plan, "orrery run");
    Job job{.program = proven_program(plan_to_run(plan, speaks))};
    check_runnable(*job.program.plan, options.plan);
    check_is_for_gpus(options, *job.program.plan);
    if (!options.paced.empty()) job.durations = read_durations(options.paced, job.program, options.stretch);
    return job;
}

/// Paced runs compute nothing, so they can run on any machine.
void check_backend(const RunOptions& options, const Job& job, int ranks_here) {
    if (!job.durations) exec::check_backend(job.program, options.on_cpu(), ranks_here, options.plan);
}

/// nullptr without a terminal or with --quiet.
std::unique_ptr<ProgressLine> progress_line(const RunOptions& options) {
    if (options.quiet || isatty(STDERR_FILENO) == 0) return nullptr;
    return std::make_unique<ProgressLine>(options.warm_up + options.steps, options.paced.empty());
}

/// Returns the exit code: 128 + signal if the user ended the training and no launcher reports that.
int train(const RunOptions& options, const Job& job, exec::Transport& transport) {
    const exec::FlightRecorder& recorder = transport.recorder();
    try {
        const program::Program& program = job.program;
        const std::unique_ptr<ProgressLine> line =
            transport.world_size() == 1 && !recorder.is_watched() ? progress_line(options) : nullptr;
        const auto show = [&](const exec::FlightRecorder& own) { line->show(exec::progress_of(own, program)); };
        const program::RunRecord record =
            exec::execute(program, transport,
                          {.steps = options.steps,
                           .warm_up = options.warm_up,
                           .record_spans = !options.trace.empty() || !options.record.empty(),
                           .durations = job.durations ? &*job.durations : nullptr,
                           .timeout_s = static_cast<double>(options.timeout_s),
                           .checkpoints = checkpoint_options(options),
                           .gradients_path = options.gradients,
                           .on_cpu = options.on_cpu(),
                           .deterministic = options.deterministic,
                           .on_step = line ? show : std::function<void(const exec::FlightRecorder&)>()});
        if (line) line->show({});
        if (transport.rank() == 0) {
            recorder.wait_for_the_terminal();
            report(options, program, record);
        }
    } catch (const InputError& error) {
        transport.abort(kExitInputWrong, error.what());
    } catch (const JobError& error) {
        transport.abort(kExitJobFailed, fmt::format("rank {}: {}", transport.rank(), error.what()));
    } catch (const std::bad_alloc&) {
        transport.abort(kExitJobFailed, fmt::format("rank {}: out of memory", transport.rank()));
    } catch (const std::exception& error) {
        transport.abort(kExitBug, fmt::format("rank {}: this is a bug in Orrery: {}", transport.rank(), error.what()));
    }
    const bool ended_here = recorder.has_stopped() && !recorder.is_watched();
    return ended_here ? 128 + recorder.stop_signal() : kExitDone;
}

/// Runs this process as one of a job's ranks. The ranks first exchange their errors, which are usually the same on all
/// of them: rank 0 prints the first one, and all ranks exit.
int run_rank(const RunOptions& options) {
    std::unique_ptr<const Job> job;  // outlives the transport
    exec::Transport transport;
    std::string wrong;
    try {
        job = std::make_unique<const Job>(load_job(options, transport.rank() == 0 && !exec::launched_by_us()));
        if (transport.world_size() != job->program.world_size()) {
            throw InputError(options.plan, "world size", std::to_string(transport.world_size()),
                             fmt::format("dp * tp * pp * cp = {} ranks", job->program.world_size()));
        }
        check_backend(options, *job, transport.ranks_on_host());
        if (transport.rank() == 0) check_results(options, job->program);
    } catch (const InputError& error) {
        wrong = error.what();
    } catch (const JobError& error) {
        transport.abort(kExitJobFailed, fmt::format("rank {}: {}", transport.rank(), error.what()));
    } catch (const std::exception& error) {
        transport.abort(kExitBug, fmt::format("rank {}: this is a bug in Orrery: {}", transport.rank(), error.what()));
    }
    // Different plans are reported first, since they explain other errors such as a wrong world size.
    const std::string differs =
        why_plans_differ(transport, options.plan, job == nullptr ? "" : program::to_json_text(*job->program.plan));
    const std::string first = transport.first_of(differs.empty() ? wrong : differs);
    if (first.empty()) return train(options, *job, transport);
    if (transport.rank() == 0) {
        say("orrery: " + first + "\n");
    }
    return kExitInputWrong;
}

int run_on_slurm(const RunOptions& options, const program::Plan& plan) {
    RunOptions there = options;
    there.plan = scriptable_path("plan", options.plan);
    there.paced = scriptable_path("--paced", options.paced);
    std::string folder;  // of the first output
    for (auto [flag, path] : {std::pair{"--record", &there.record},
                              {"--trace", &there.trace},
                              {"--gradients", &there.gradients},
                              {"--checkpoint", &there.checkpoint},
                              {"--resume", &there.resume}}) {
        *path = scriptable_path(flag, *path);
        if (folder.empty()) folder = std::filesystem::path(*path).parent_path().string();
    }
    if (folder.empty()) folder = std::filesystem::current_path().string();
    start_on_slurm(options.slurm, plan, arguments_of(there), folder);
    return kExitDone;
}

/// Becomes the command with emulated GPUs, which is built beside this one.
[[noreturn]] void run_emulated(const RunOptions& options) {
    const std::string program = emulated_program();
    std::vector<std::string> words = arguments_of(options);
    words.insert(words.begin(), program);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    execv(program.c_str(), argv.data());
    throw InputError(
        fmt::format("--emulated: cannot start {}: {}; allowed: a build of Orrery with its tests, which makes it",
                    program, std::strerror(errno)));
}

int run_run(const RunOptions& options) {
    (void)exec::fault_of_rank(0);  // throws if ORRERY_FAULT is invalid
    if (options.emulated && options.on_cpu()) {
        throw InputError("--backend: got cpu; allowed: cuda, because --emulated emulates GPUs");
    }
    if (options.emulated && !exec::gpus_are_emulated()) run_emulated(options);
    const bool is_rank = !options.slurm.wanted && exec::under_launcher();
    if (is_rank) {
        const std::string wrong = exec::why_tasks_cannot_meet();
        if (wrong.empty()) return run_rank(options);
        if (exec::task_number() == 0) throw InputError(wrong);
        std::this_thread::sleep_for(kWaitForTheMessage);
        return kExitInputWrong;
    }
    const Job job = load_job(options, true);
    check_results(options, job.program);
    if (options.slurm.wanted) return run_on_slurm(options, *job.program.plan);
    check_backend(options, job, static_cast<int>(job.program.world_size()));
    if (job.program.world_size() > 1) {
        const std::unique_ptr<ProgressLine> line = progress_line(options);
        const auto show = [&](const std::optional<exec::TrainingProgress>& progress) { line->show(progress); };
        return exec::launch_ranks(
            {.ranks = static_cast<int>(job.program.world_size()),
             .arguments = arguments_of(options),
             .timeout_s = static_cast<double>(options.timeout_s),
             .program = &job.program,
             .show = line ? show : std::function<void(const std::optional<exec::TrainingProgress>&)>()});
    }
    exec::Transport transport;
    return train(options, job, transport);
}

}  // namespace

void add_run(CLI::App& app, Action& chosen) {
    auto options = std::make_shared<RunOptions>();
    CLI::App* command = app.add_subcommand("run", "Execute a plan: train on this machine or under mpirun/srun");
    command->add_option("plan", options->plan, "Plan file (orrery plan --output)")->required();
    add_training_options(*command, options->steps, options->warm_up, options->timeout_s);
    command->add_option("--trace", options->trace, "Write a Chrome/Perfetto trace of the median step");
    command->add_option("--record", options->record, "Write the orrery.run_record/1 with every instruction");
    CLI::Option* gradients = command->add_option("--gradients", options->gradients,
                                                 "Write the last step's unsharded gradients (orrery.gradients/1)");
    CLI::Option* checkpoint = command->add_option("--checkpoint", options->checkpoint,
                                                  "Write checkpoints into this folder, at least one at the end");
    command->add_option("--checkpoint-every", options->checkpoint_every, "Steps between checkpoints")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
        ->needs(checkpoint);
    command->add_option("--keep", options->keep, "Number of newest checkpoints to keep")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
        ->capture_default_str()
        ->needs(checkpoint);
    CLI::Option* resume = command->add_option(
        "--resume", options->resume,
        "Resume from the newest checkpoint in this folder, written under any plan of the same training");
    CLI::Option* paced =
        command
            ->add_option("--paced", options->paced,
                         "Compute nothing: each instruction sleeps for its duration in this orrery.run_record/1")
            ->excludes(gradients)
            ->excludes(checkpoint)
            ->excludes(resume);
    add_stretch_option(*command, options->stretch)->needs(paced);
    CLI::Option* backend = command
                               ->add_option("--backend", options->backend,
                                            "Where to run: cpu (CPU cores) or cuda (GPUs); default: what the plan's "
                                            "cluster consists of")
                               ->check(CLI::IsMember({"cpu", "cuda"}))
                               ->excludes(paced);
    CLI::Option* on_cpu = command->add_flag_callback(
        "--on-cpu", [options] { options->backend = "cpu"; },
        "Same as --backend cpu: run a plan for GPUs on CPU cores, the same training, but not the same times");
    on_cpu->excludes(backend)->excludes(paced);
    CLI::Option* emulated =
        command->add_flag("--emulated", options->emulated,
                          "Run a plan for GPUs on emulated ones: the code that GPUs run, without their times");
    command->add_flag("--deterministic", options->deterministic,
                      "Sum in the same order in every run, for bitwise equal losses (always so on CPU cores)");
    command->add_flag("--details", options->details, "Show each stage, not only the worst, the mean and the best");
    command->add_flag("--json", options->json, "Print orrery.run_record/1 JSON");
    command->add_flag("--quiet", options->quiet, "Print nothing");
    add_slurm_options(*command, options->slurm);
    emulated->excludes(on_cpu)->excludes("--trace")->excludes(paced)->excludes("--slurm");
    command->footer(
        "Example: orrery run examples/gpt2-dp2.plan.json --steps 5\n"
        "Restartable: orrery run examples/gpt2-dp2.plan.json --steps 4 --checkpoint gpt2.checkpoints "
        "--checkpoint-every 2\n"
        "As an sbatch script: orrery run examples/gpt2-dp2.plan.json --steps 5 --slurm --time 30:00");
    command->callback([options, &chosen] { chosen = [options] { return run_run(*options); }; });
}

}  // namespace orrery::cli
