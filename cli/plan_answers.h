// `orrery plan --explain`, `--guide`, `--shortlist` and `--pick`: what it answers beside its ranking.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/error.h"
#include "sim/planner/nearest_plan.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
class Option;
}  // namespace CLI

namespace orrery::cli {

struct PlanAnswerOptions {
    bool explain = false, guide = false;
    std::size_t shortlist = 0;  // number of plans; 0: not asked for
    std::string output_dir;
    std::vector<std::string> pick;  // run records
};

/// Adds the options. With --pick the options `required` are not required, and are refused.
void add_plan_answer_options(CLI::App& command, PlanAnswerOptions& options, const std::vector<CLI::Option*>& required);

/// A search for plans, as the command was asked for it.
struct PlanCase {
    sim::RequestsFor requests;
    std::int64_t devices = 0;
};

/// Checks what can be checked before the search.
void check_plan_answers(const PlanAnswerOptions& options);

/// `results`: of the search, best first. Prints what --explain and --guide ask for, after the ranking, or with `json`
/// as orrery.plan_answers/1 in its place; writes the shortlist. Returns whether JSON was printed.
bool answer(const PlanAnswerOptions& options, const PlanCase& job, const std::vector<program::PlanResult>& results,
            bool json);

/// With --guide prints the guide. Throws InfeasibleError: the message of `nothing`, what the nearest plan lacks, and
/// the smallest cluster on which a plan fits; with `json` prints these as orrery.plan_answers/1 first.
[[noreturn]] void answer_nothing_fits(const PlanAnswerOptions& options, const PlanCase& job,
                                      const InfeasibleError& nothing, bool json);

}  // namespace orrery::cli
