#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <set>
#include <thread>

#include "cli/child.h"
#include "cli/commands.h"
#include "cli/validate_collectives.h"
#include "cli/validate_rows.h"
#include "core/error.h"
#include "core/file.h"
#include "exec/interpreter.h"
#include "exec/launch.h"
#include "exec/make_backend.h"
#include "reports/comparison.h"
#include "reports/table.h"
#include "reports/timeline.h"
#include "reports/trace.h"
#include "sim/cost/roofline_cost.h"
#include "sim/planner/planner.h"
#include "sim/program/plan_list.h"

namespace orrery::cli {
namespace {

struct ValidateOptions {
    std::vector<std::string> plans;
    std::string traces, timelines, records;
    std::int64_t steps = 7, warm_up = 2, timeout_s = exec::kDefaultTimeout_s;
    bool json = false, details = false;
    RowsOptions rows;
    CollectivesOptions collectives;
};

void write_into(const std::filesystem::path& folder, const std::string& name, const std::string& text) {
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    if (failed) throw JobError("cannot make the folder " + folder.string() + ": " + failed.message());
    write_file_atomically((folder / name).string(), text);
}

/// A plan to run, what is predicted of it, and where it was read.
struct Candidate {
    program::Program program;
    sim::Evaluation evaluation;
    std::string source;
    std::string note;  // prediction with the plan's own implementation, if another one runs it
};

/// The predicted step time with the plan's own implementation; "" if that is the one that runs it.
std::string own_prediction(const program::Plan& plan) {
    if (plan.implementation.executable) return "";
    const sim::Evaluation own = sim::evaluate(program::lower(plan), topologies::Cluster(plan.cluster));
    return fmt::format("with {}, the plan's own implementation, the predicted step time is {}",
                       plan.implementation.name, reports::format_seconds(own.record.step_time_s));
}

/// Reads, checks and predicts all plans before any runs, so that errors are found early.
std::vector<Candidate> read_candidates(const ValidateOptions& options) {
    std::vector<Candidate> candidates;
    std::set<std::string> names;
    const bool keeps_files = !options.records.empty() || !options.traces.empty() || !options.timelines.empty();
    for (const std::string& path : options.plans) {
        const std::vector<program::Plan> plans = program::read_plans(path);
        for (const program::Plan& plan : plans) {
            const std::string source = plans.size() == 1 ? path : path + ": /plans/" + plan.name;
            if (!names.insert(plan.name).second && keeps_files) {
                throw InputError(source, "/name", plan.name,
                                 "a name that no plan before has: it names the output files");
            }
            refuse_long_step(plan, source, "orrery validate");
            program::Program program = proven_program(plan_to_run(plan, true));
            check_runnable(*program.plan, source);
            if (!plan.cluster.device.host_runs_compute) {
                exec::check_backend(program, false, static_cast<int>(plan.parallelism.world_size()), source);
            }
            sim::Evaluation evaluation =
                sim::evaluate(program, topologies::Cluster(plan.cluster), {.record_spans = true});
            candidates.push_back({std::move(program), std::move(evaluation), source, own_prediction(plan)});
        }
    }
    return candidates;
}

reports::Comparison validate_one(const ValidateOptions& options, const Candidate& candidate,
                                 const TemporaryFolder& folder) {
    const program::Program& program = candidate.program;
    const sim::Evaluation& evaluation = candidate.evaluation;
    const std::string path = folder.file("plan.json");
    write_file_atomically(path, program::to_json_text(*program.plan));
    const std::string record_path = folder.file("record.json");
    run_self({"run", path, "--quiet", "--steps", std::to_string(options.steps), "--warm-up",
              std::to_string(options.warm_up), "--timeout", std::to_string(options.timeout_s), "--record", record_path},
             "the run of " + candidate.source);
    const program::RunRecord measured = program::run_record_from_json_text(
        read_text_file(record_path, program::kLargestRunRecord), record_path, program);
    const sim::RooflineCost cost(program.plan->cluster, program.plan->rates);
    reports::Comparison comparison = reports::compare(
        program, evaluation.record, measured, [&](const models::Operator& op) { return cost.operator_seconds(op); });
    if (!candidate.note.empty()) comparison.notes.push_back(candidate.note);
    // With more ranks than cores, ranks take turns; the operating system's scheduling is not modelled.
    comparison.judged = program.world_size() <= static_cast<std::int64_t>(std::thread::hardware_concurrency());
    if (!options.records.empty()) {
        write_into(options.records, program.plan->name + ".plan.json", program::to_json_text(*program.plan));
        write_into(options.records, program.plan->name + ".record.json", program::to_json_text(measured, program));
    }
    if (!options.traces.empty()) {
        write_into(options.traces, program.plan->name + ".trace.json",
                   reports::trace_json(program, evaluation.record, measured));
    }
    if (!options.timelines.empty()) {
        write_into(options.timelines, program.plan->name + ".svg",
                   reports::timeline_svg(program, evaluation.record, measured));
    }
    return comparison;
}

int run_validate(const ValidateOptions& options) {
    if (!options.rows.files.empty()) return run_validate_rows(options.rows, options.json);
    if (!options.collectives.file.empty()) return run_validate_collectives(options.collectives, options.json);
    if (options.plans.empty()) {
        throw InputError("command line", "plans", "none", "plan files, --rows FILE or --collectives FILE");
    }
    const std::vector<Candidate> candidates = read_candidates(options);
    const TemporaryFolder folder;
    std::vector<reports::Comparison> comparisons;
    for (const Candidate& candidate : candidates) {
        if (isatty(STDERR_FILENO) != 0) {
            say(fmt::format("running {} ({} of {}) ...\n", candidate.program.plan->name, comparisons.size() + 1,
                            candidates.size()));
        }
        try {
            comparisons.push_back(validate_one(options, candidate, folder));
        } catch (...) {
            if (!options.json && !comparisons.empty()) print(reports::comparisons_text(comparisons));  // results so far
            throw;
        }
        if (options.details && !options.json) print(reports::comparison_text(comparisons.back()) + "\n");
    }
    print(options.json ? reports::comparisons_json(comparisons) : reports::comparisons_text(comparisons));
    for (const Candidate& candidate : candidates) {
        if (!options.json && !candidate.note.empty())
            print(candidate.program.plan->name + ": " + candidate.note + "\n");
    }
    return kExitDone;
}

}  // namespace

void add_validate(CLI::App& app, Action& chosen) {
    auto options = std::make_shared<ValidateOptions>();
    CLI::App* command = app.add_subcommand(
        "validate", "Compare predictions with measurements: plans that are run here, or published runs");
    CLI::Option* plans = command->add_option(
        "plans", options->plans, "Plans for the cluster `local`: plan files, or lists of plans (orrery.plan_list/1)");
    CLI::Option* rows = add_rows_options(*command, options->rows)->excludes(plans);
    add_collectives_options(*command, options->collectives)->excludes(plans)->excludes(rows);
    add_training_options(*command, options->steps, options->warm_up, options->timeout_s);
    command->add_option("--traces", options->traces, "Write a trace with both timelines for each plan to this folder");
    command->add_option("--timelines", options->timelines,
                        "Write a picture with both timelines for each plan to this folder (SVG)");
    command->add_option("--records", options->records,
                        "Write each plan and the record of its run to this folder, for calibrate --from");
    command->add_flag("--details", options->details,
                      "Show for each plan where the step goes, bytes, memory and the worst instructions");
    command->add_flag("--json", options->json,
                      "Print JSON: orrery.comparison/1, row_predictions/1 or collectives_validation/1");
    command->footer("Example: orrery validate examples/gpt2-dp2.plan.json --details");
    command->callback([options, &chosen] { chosen = [options] { return run_validate(*options); }; });
}

}  // namespace orrery::cli
