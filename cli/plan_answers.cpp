#include "cli/plan_answers.h"

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/plan_shortlist.h"
#include "core/error.h"
#include "reports/explanation.h"
#include "reports/plan_answers.h"
#include "sim/cost/roofline_cost.h"
#include "sim/planner/advise.h"
#include "sim/planner/guide.h"

namespace orrery::cli {
namespace {

constexpr const char* kAnswersGroup = "Answers";
/// Meshes on which nothing fits that --explain explains.
constexpr std::size_t kMostMeshes = 3;

/// Where the step of the best plan goes. A step that is too long to be simulated is represented by a shorter one.
void add_breakdown(const program::Plan& best, reports::PlanAnswers& answers) {
    const std::optional<sim::ShorterSteps> shorter = sim::shorter_steps(best);
    const program::Program program = program::lower(shorter ? sim::with_micro_batches(best, shorter->more) : best);
    const sim::Evaluation evaluation =
        sim::evaluate(program, topologies::Cluster(best.cluster), {.record_spans = true});
    const sim::RooflineCost cost(best.cluster, best.rates);
    const reports::PartTable table(program, [&](const models::Operator& op) { return cost.operator_seconds(op); });
    answers.time = reports::breakdown_of(program, evaluation.record, table);
    answers.simulated_micro_batches = program.plan->micro_batches();
}

}  // namespace

void add_plan_answer_options(CLI::App& command, PlanAnswerOptions& options, const std::vector<CLI::Option*>& required) {
    const auto grouped = [](CLI::Option* option) { return option->group(kAnswersGroup); };
    CLI::Option* explain = grouped(command.add_flag(
        "--explain", options.explain,
        "Show what limits the best plan, which changes of it and of the inputs help most, and what is lacking on the "
        "meshes where nothing fits"));
    CLI::Option* guide = grouped(
        command.add_flag("--guide", options.guide,
                         "Show the decision guide (replicas, sharding, tp, pp, cp, ep) with this job's figures"));
    CLI::Option* shortlist =
        grouped(command.add_option("--shortlist", options.shortlist,
                                   "Write this many plans that differ in kind, with launch scripts, to --output-dir"))
            ->check(CLI::Range(std::size_t{1}, std::size_t{32}));
    CLI::Option* folder = grouped(command.add_option("--output-dir", options.output_dir,
                                                     "Folder of the shortlist, which must not exist yet or be empty"));
    shortlist->needs(folder);
    CLI::Option* pick =
        grouped(command.add_option("--pick", options.pick,
                                   "Choose the fastest plan of a shortlist by these records of `orrery run`, which lie "
                                   "in the shortlist's folder (or name it with --output-dir)"))
            ->excludes(explain)
            ->excludes(guide)
            ->excludes(shortlist);
    for (CLI::Option* option : required) pick->excludes(option);
    // Options are read before it is checked whether the required ones were given.
    pick->each([required](const std::string&) {
        for (CLI::Option* option : required) option->required(false);
    });
}

void check_plan_answers(const PlanAnswerOptions& options) {
    if (options.shortlist == 0 && !options.output_dir.empty()) {
        throw InputError("command line", "--output-dir", options.output_dir, "only with --shortlist or --pick");
    }
    if (options.shortlist > 0) check_shortlist_folder(options.output_dir);
}

bool answer(const PlanAnswerOptions& options, const PlanCase& job, const std::vector<program::PlanResult>& results,
            bool json) {
    if (options.shortlist > 0) write_shortlist(job.requests(job.devices), options.shortlist, options.output_dir, json);
    if (!options.explain && !options.guide) return false;
    const program::PlanResult& best = results.front();
    reports::PlanAnswers answers;
    if (options.explain) {
        answers.advice = sim::advise(results, job.requests(job.devices), kMostMeshes);
        add_breakdown(best.plan, answers);
        if (!json) {
            print(reports::plan_advice_text(*answers.advice, answers.time, answers.simulated_micro_batches));
        }
    }
    if (options.guide) {
        answers.guide = sim::decision_guide(job.requests, job.devices, &best);
        if (!json) print(reports::plan_guide_text(*answers.guide));
    }
    if (json) print(reports::plan_answers_json(answers));
    return json;
}

void answer_nothing_fits(const PlanAnswerOptions& options, const PlanCase& job, const InfeasibleError& nothing,
                         bool json) {
    reports::PlanAnswers answers;
    if (options.guide) {
        answers.guide = sim::decision_guide(job.requests, job.devices, nullptr);
        if (!json) print(reports::plan_guide_text(*answers.guide));
    }
    answers.nearest = sim::nearest_plan(job.requests, job.devices);
    if (json) print(reports::plan_answers_json(answers));
    throw InfeasibleError(std::string(nothing.what()) + "; " + reports::nearest_plan_text(*answers.nearest));
}

}  // namespace orrery::cli
