// Private to the planner: the plans that a request allows.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/planner/planner.h"

namespace orrery::sim {

/// Every micro-batch size up to here that divides is tried. Above it the sizes tried lie at least an eighth apart,
/// since efficiency hardly changes between two neighbours while a batch with many divisors would multiply the search.
inline constexpr std::int64_t kEveryMicroBatch = 32;

struct CandidateList {
    /// Plans that differ in the micro-batch size only, smallest first; in the order of tp, pp, schedule, sp.
    std::vector<std::vector<program::Plan>> families;
    std::int64_t considered = 0;  // plans in them
    std::int64_t left_out = 0;    // plans whose micro-batch size divides but lies next to one that is tried
};

/// Throws InputError when no plan divides as it must, or when all break a rule of check_plan.
[[nodiscard]] CandidateList list_candidates(const PlanRequest& request);

/// Ascending.
[[nodiscard]] std::vector<std::int64_t> divisors(std::int64_t n);

}  // namespace orrery::sim
