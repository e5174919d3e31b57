// What is known about the order of a search's results: the gap that is proven, and which results are tied.
#include <algorithm>

#include "core/units.h"
#include "sim/planner/planner.h"
#include "sim/program/step_ratio.h"

namespace orrery::sim {

double proven_gap(const PlanSearch& search) {
    if (search.results.empty() || !search.results.front().feasible) return 0;
    return std::max(0.0, 1 - search.least_open_s / search.results.front().step_time_s);
}

program::SearchSummary summary_of(const PlanSearch& search) {
    return {.memory_limit_gib = to_gib(Bytes(search.memory_limit_bytes)),
            .counts = {.considered = search.considered,
                       .bounded = search.bounded,
                       .sketched = search.candidate_lowerings,
                       .simulated = search.simulated,
                       .too_large = search.too_large,
                       .dominated = search.dominated,
                       .left_out = search.left_out},
            .proven_gap = proven_gap(search),
            .proven_ranks = proven_results(search),
            .tolerance = kStepTolerance,
            .spaces = search.spaces};
}

void compare_with_first(std::vector<program::PlanResult>& results) {
    for (program::PlanResult& result : results) result.to_first = program::ratio_to_first(result, results.front());
}

}  // namespace orrery::sim
