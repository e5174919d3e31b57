#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/simulate_jobs.h"
#include "cli/strict.h"
#include "core/error.h"
#include "core/file.h"
#include "reports/explanation.h"
#include "reports/misfit.h"
#include "reports/summary.h"
#include "reports/timeline.h"
#include "reports/trace.h"
#include "sim/cost/roofline_cost.h"
#include "sim/engine/critical_path.h"
#include "sim/engine/simulate.h"
#include "sim/planner/planner.h"
#include "sim/program/rate_spread.h"

namespace orrery::cli {
namespace {

struct SimulateOptions {
    JobsOptions jobs;
    std::string trace, timeline, record, durations;
    double stretch = 1;
    bool explain = false, first_step = false, strict = false, ignore_memory = false, details = false;
    [[nodiscard]] const std::string& plan() const { return jobs.plans.front(); }
};

reports::TimePart part_of(sim::PathCause delay) {
    return delay == sim::PathCause::earlier_step ? reports::TimePart::idle : reports::TimePart::host;
}

/// Where time and memory go, with the costs that the record was predicted with.
reports::Explanation explain(const program::Program& program, const program::RunRecord& record,
                             const program::Sensitivity& sensitivity) {
    std::vector<reports::PathElement> path;
    for (const sim::PathElement& one : sim::critical_path(program, record).elements) {
        path.push_back({one.record, one.span, part_of(one.cause), one.from_ps, one.start_ps, one.to_ps});
    }
    const sim::RooflineCost cost(program.plan->cluster, program.plan->rates);
    return reports::explain(
        program, record, [&](const models::Operator& op) { return cost.operator_seconds(op); }, path,
        program::rate_slopes(*program.plan, sensitivity, record.step_time_s));
}

/// The prediction of one plan.
struct Prediction {
    program::Program program;  // with fewer micro-batches than the plan if the step is too long to be simulated
    program::RunRecord record;
    program::Sensitivity sensitivity;  // empty if durations were given
    program::MemoryFit memory;
};

Prediction predict(const SimulateOptions& options, bool spans) {
    const program::Plan plan = program::read_plan(options.plan());
    const auto shorter = sim::shorter_steps(plan);
    if (shorter) {
        const char* const needs_all = !options.durations.empty() ? "--durations"
                                      : options.first_step       ? "--first-step"
                                      : options.strict           ? "--strict"
                                      : spans                    ? "--explain, --trace, --timeline and --record"
                                                                 : nullptr;
        if (needs_all != nullptr) refuse_long_step(plan, options.plan(), needs_all);
    }
    Prediction prediction{
        .program = proven_program(shorter ? sim::with_micro_batches(plan, shorter->more) : plan,
                                  options.first_step ? program::StepKind::first : program::StepKind::steady)};
    const program::Program& program = prediction.program;
    if (options.strict) refuse_assumptions(program, options.plan());
    if (!options.durations.empty()) {
        prediction.memory = sim::memory_fit(program, options.jobs.memory_margin_gib);
        prediction.record =
            sim::replay(program, read_durations(options.durations, program, options.stretch), {.record_spans = spans});
        return prediction;
    }
    const topologies::Cluster cluster(plan.cluster);
    const sim::EvaluateOptions how{.record_spans = spans,
                                   .full = options.jobs.full,
                                   .derivatives = true,
                                   .memory_margin_gib = options.jobs.memory_margin_gib};
    sim::Evaluation evaluation =
        shorter ? sim::evaluate_from(*shorter, plan, cluster, how) : sim::evaluate(program, cluster, how);
    if (!plan.cluster.changes.empty()) {
        evaluation.record.notes.push_back("changes of links are ignored; with --cluster they are simulated");
    }
    if (shorter) prediction.program.plan = std::make_shared<const program::Plan>(plan);
    prediction.memory = evaluation.memory;
    prediction.sensitivity = std::move(evaluation.sensitivity);
    prediction.record = std::move(evaluation.record);
    return prediction;
}

/// Throws InputError if an option for a single plan's step is given together with several plans or --cluster.
void check_alone(const SimulateOptions& options) {
    const std::vector<std::pair<const char*, std::string>> given{{"--trace", options.trace},
                                                                 {"--timeline", options.timeline},
                                                                 {"--record", options.record},
                                                                 {"--durations", options.durations},
                                                                 {"--explain", options.explain ? "true" : ""},
                                                                 {"--first-step", options.first_step ? "true" : ""},
                                                                 {"--strict", options.strict ? "true" : ""}};
    for (const auto& [option, value] : given) {
        if (!value.empty()) throw InputError("the command line", option, value, "one plan, without --cluster");
    }
    if (!options.jobs.cluster.empty()) return;
    std::string plans;
    for (const std::string& plan : options.jobs.plans) plans += (plans.empty() ? "" : " ") + plan;
    throw InputError("the command line", "plan", plans, "one plan, or several with the --cluster that they share");
}

/// Prints the text about plans that do not fit; with --json on standard error. Returns the exit code.
int say_misfit(const SimulateOptions& options, const std::string& text) {
    if (text.empty()) return kExitDone;
    if (options.jobs.json) {
        say("orrery: " + text);
    } else {
        print(text + "\n");
    }
    return options.ignore_memory ? kExitDone : kExitInfeasible;
}

/// "" if the plan fits.
std::string misfit_of(const SimulateOptions& options, const Prediction& prediction) {
    constexpr std::size_t kMostRemedies = 5;
    if (prediction.memory.fits()) return "";
    const program::Plan& plan = *prediction.program.plan;
    const topologies::Cluster cluster(plan.cluster);
    return reports::misfit_text(plan, prediction.memory,
                                sim::remedies(plan, cluster, kMostRemedies, options.jobs.memory_margin_gib));
}

int run_simulate(const SimulateOptions& options) {
    if (options.jobs.plans.size() > 1 || !options.jobs.cluster.empty()) {
        check_alone(options);
        const SimulatedJobs jobs = simulate_jobs(options.jobs);
        const int exit_code = say_misfit(options, jobs.misfits);
        print(jobs.report);
        return exit_code;
    }
    check_outputs({{"--trace", options.trace}, {"--timeline", options.timeline}, {"--record", options.record}},
                  {{"the plan", options.plan()}, {"--durations", options.durations}});
    const bool spans =
        options.explain || !options.trace.empty() || !options.timeline.empty() || !options.record.empty();
    const Prediction prediction = predict(options, spans);
    const program::Program& program = prediction.program;
    const program::RunRecord& record = prediction.record;
    if (!options.trace.empty()) {
        write_file_atomically(options.trace, reports::trace_json(program, record));
    }
    if (!options.timeline.empty()) {
        write_file_atomically(options.timeline, reports::timeline_svg(program, record));
    }
    if (!options.record.empty()) {
        write_file_atomically(options.record, program::to_json_text(record, program));
    }
    const int exit_code = say_misfit(options, misfit_of(options, prediction));
    if (options.explain) {
        const reports::Explanation explanation = explain(program, record, prediction.sensitivity);
        print(options.jobs.json ? reports::explanation_json(explanation) : reports::explanation_text(explanation));
    } else {
        const reports::Stages stages = options.details ? reports::Stages::each : reports::Stages::extremes;
        print(options.jobs.json ? program::to_json_text(record, program)
                                : reports::summary_text(program, record, stages));
    }
    return exit_code;
}

}  // namespace

void add_simulate(CLI::App& app, Action& chosen) {
    auto options = std::make_shared<SimulateOptions>();
    CLI::App* command = app.add_subcommand(
        "simulate", "Predict time, memory and communication of one plan, or of several that share a cluster");
    command->add_option("plan", options->jobs.plans, "Plan files (orrery plan --output)")->required();
    CLI::Option* cluster = command->add_option("--cluster", options->jobs.cluster,
                                               "Run the plans together on this cluster (preset or file), each on whole "
                                               "nodes, and show how they slow each other "
                                               "down");
    command->add_option("--gpus", options->jobs.gpus, "Size of that cluster; default as many as the jobs need")
        ->check(CLI::Range(1LL, 1LL << 24))
        ->needs(cluster);
    const std::map<std::string, Allocation> allocations{{"packed", Allocation::packed},
                                                        {"by-turns", Allocation::by_turns}};
    command
        ->add_option("--allocation", options->jobs.allocation,
                     "packed: consecutive nodes for each job; by-turns: round-robin, so that jobs share switches")
        ->transform(CLI::CheckedTransformer(allocations))
        ->needs(cluster);
    command->add_option("--steps", options->jobs.steps, "Minimum number of steps of each job")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str()
        ->needs(cluster);
    command->add_option("--trace", options->trace, "Write a Chrome/Perfetto trace of the step");
    command->add_option("--timeline", options->timeline, "Write a picture of the step (SVG)");
    command->add_option("--record", options->record, "Write the orrery.run_record/1 with every instruction");
    CLI::Option* full = command->add_flag("--full", options->jobs.full,
                                          "Simulate every rank instead of one of each kind (same result)");
    CLI::Option* strict = command->add_flag(
        "--strict", options->strict,
        "Refuse a plan whose prediction rests on rates or on figures of devices and links that are assumptions");
    CLI::Option* durations =
        command
            ->add_option("--durations", options->durations,
                         "Take each instruction's duration from this orrery.run_record/1, predicted or measured")
            ->excludes(full)
            ->excludes(strict);
    add_stretch_option(*command, options->stretch)->needs(durations);
    command->add_flag("--explain", options->explain, "Show where the step's time and the memory go");
    command->add_flag("--first-step", options->first_step,
                      "Simulate the first step, before DDP has ordered its buckets");
    command->add_flag("--details", options->details, "Show each stage, not only the worst, the mean and the best");
    add_memory_margin_option(*command, options->jobs.memory_margin_gib);
    command->add_flag("--ignore-memory", options->ignore_memory, "Exit with 0 even if the plan does not fit");
    command->add_flag("--json", options->jobs.json,
                      "Print orrery.run_record/1 JSON; with --explain orrery.explanation/1, with --cluster "
                      "orrery.simulated_jobs/1");
    command->footer(
        "Together: orrery simulate examples/llama3-8b-64-h100.plan.json examples/llama3-8b-64-h100.plan.json "
        "--cluster dgx-h100\n"
        "Example: orrery simulate examples/llama3-8b-64-h100.plan.json --explain");
    command->callback([options, &chosen] { chosen = [options] { return run_simulate(*options); }; });
}

}  // namespace orrery::cli
