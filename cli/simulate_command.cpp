#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.h"
#include "core/error.h"
#include "core/file.h"
#include "reports/summary.h"
#include "reports/timeline.h"
#include "reports/trace.h"
#include "sim/planner/planner.h"

namespace orrery::cli {
namespace {

struct SimulateOptions {
    std::string plan, trace, timeline, record;
    bool full = false, json = false;
};

int run_simulate(const SimulateOptions& options) {
    check_outputs({{"--trace", options.trace}, {"--timeline", options.timeline}, {"--record", options.record}});
    const program::Program program = load_program(options.plan);
    const topologies::Cluster cluster(program.plan->cluster);
    const bool spans = !options.trace.empty() || !options.timeline.empty() || !options.record.empty();
    sim::Evaluation evaluation = sim::evaluate(program, cluster, spans, options.full);
    if (!evaluation.result.feasible) evaluation.record.notes.push_back("this plan " + evaluation.result.reason);
    if (!options.trace.empty()) {
        write_file_atomically(options.trace, reports::trace_json(program, evaluation.record));
    }
    if (!options.timeline.empty()) {
        write_file_atomically(options.timeline, reports::timeline_svg(program, evaluation.record));
    }
    const std::string record = program::to_json_text(evaluation.record, program);
    if (!options.record.empty()) write_file_atomically(options.record, record);
    print(options.json ? record : reports::summary_text(program, evaluation.record));
    return kExitDone;
}

}  // namespace

void add_simulate(CLI::App& app, Action& chosen) {
    auto options = std::make_shared<SimulateOptions>();
    CLI::App* command = app.add_subcommand("simulate", "Predict one plan: time, memory, communication");
    command->add_option("plan", options->plan, "Plan file (orrery plan --output)")->required();
    command->add_option("--trace", options->trace, "Write a Chrome/Perfetto trace of the step");
    command->add_option("--timeline", options->timeline, "Write a picture of the step (SVG)");
    command->add_option("--record", options->record, "Write the orrery.run_record/1 with every instruction");
    command->add_flag("--full", options->full, "Simulate every rank instead of one of each kind (same result)");
    command->add_flag("--json", options->json, "Print orrery.run_record/1 JSON");
    command->footer("Example: orrery simulate examples/gpt2-dp2.plan.json --trace predicted.json");
    command->callback([options, &chosen] { chosen = [options] { return run_simulate(*options); }; });
}

}  // namespace orrery::cli
