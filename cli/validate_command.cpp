#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <thread>

#include "cli/child.h"
#include "cli/commands.h"
#include "cli/validate_rows.h"
#include "core/error.h"
#include "core/file.h"
#include "exec/interpreter.h"
#include "reports/comparison.h"
#include "reports/timeline.h"
#include "reports/trace.h"
#include "sim/planner/planner.h"

namespace orrery::cli {
namespace {

struct ValidateOptions {
    std::vector<std::string> plans;
    std::string traces, timelines;
    std::int64_t steps = 7, warm_up = 2;
    bool json = false, details = false;
    RowsOptions rows;
};

void write_into(const std::filesystem::path& folder, const std::string& name, const std::string& text) {
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    if (failed) throw JobError("cannot make the folder " + folder.string() + ": " + failed.message());
    write_file_atomically((folder / name).string(), text);
}

reports::Comparison validate_one(const ValidateOptions& options, const std::string& path,
                                 const TemporaryFolder& folder) {
    const program::Program program = load_program(path);
    const topologies::Cluster cluster(program.plan->cluster);
    const sim::Evaluation evaluation = sim::evaluate(program, cluster, true);
    const std::string record_path = folder.file("record.json");
    run_self({"run", path, "--quiet", "--steps", std::to_string(options.steps), "--warm-up",
              std::to_string(options.warm_up), "--record", record_path},
             "the run of " + path);
    const program::RunRecord measured =
        program::run_record_from_json_text(read_text_file(record_path), record_path, program);
    reports::Comparison comparison = reports::compare(program, evaluation.record, measured);
    // More ranks than cores take turns, and how the operating system deals the turns is not modelled.
    comparison.judged = program.world_size() <= static_cast<std::int64_t>(std::thread::hardware_concurrency());
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
    if (!options.rows.file.empty()) return run_validate_rows(options.rows, options.json);
    if (options.plans.empty()) throw InputError("command line", "plans", "none", "plan files, or --rows FILE");
    for (const std::string& path : options.plans) {  // all input is checked before anything runs
        check_runnable(program::read_plan(path), path);
    }
    const TemporaryFolder folder;
    std::vector<reports::Comparison> comparisons;
    for (const std::string& path : options.plans) {
        if (isatty(STDERR_FILENO) != 0) fmt::print(stderr, "running {} ...\n", path);
        comparisons.push_back(validate_one(options, path, folder));
        if (options.details && !options.json) print(reports::comparison_text(comparisons.back()) + "\n");
    }
    print(options.json ? reports::comparisons_json(comparisons) : reports::comparisons_text(comparisons));
    return kExitDone;
}

}  // namespace

void add_validate(CLI::App& app, Action& chosen) {
    auto options = std::make_shared<ValidateOptions>();
    CLI::App* command = app.add_subcommand(
        "validate", "Lay prediction and measurement side by side, of plans run here or of published runs");
    CLI::Option* plans = command->add_option("plans", options->plans, "Plan files for the cluster `local`");
    add_rows_options(*command, options->rows)->excludes(plans);
    command->add_option("--steps", options->steps, "Steps to measure; the median counts")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
        ->capture_default_str();
    command->add_option("--warm-up", options->warm_up, "Steps before the first measured one")
        ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 20))
        ->capture_default_str();
    command->add_option("--traces", options->traces, "Write a trace with both timelines for each plan to this folder");
    command->add_option("--timelines", options->timelines,
                        "Write a picture with both timelines for each plan to this folder (SVG)");
    command->add_flag("--details", options->details, "Show phases and the worst instructions of each plan");
    command->add_flag("--json", options->json, "Print orrery.comparison/1 JSON; with --rows orrery.row_predictions/1");
    command->footer("Example: orrery validate examples/gpt2-dp2.plan.json --details");
    command->callback([options, &chosen] { chosen = [options] { return run_validate(*options); }; });
}

}  // namespace orrery::cli
