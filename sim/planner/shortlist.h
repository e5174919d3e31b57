// Plans that differ in kind, to be measured: where the model is wrong about one kind of plan, it is likely to be wrong
// about its neighbours too.
#pragma once

#include <cstddef>
#include <vector>

#include "sim/planner/planner.h"
#include "sim/program/plan_result.h"

namespace orrery::sim {

/// How much two plans differ in kind: the factors of two between their tp, pp, cp and ep degrees, and one each for
/// different implementations, different pipeline schedules, and different things that data-parallel ranks share
/// (nothing; optimizer states, with or without gradients; parameters). 0: the same kind, whatever their micro-batches,
/// stage layouts, numbers of chunks, recomputation, rank order and sets of shards.
[[nodiscard]] double kind_distance(const program::Plan& a, const program::Plan& b);

/// The fastest plan of each kind, fastest first: the `count` kinds (> 0) whose plans are fastest, at least 1 apart by
/// kind_distance. Fewer if fewer kinds fit. Found by branch and bound over the kinds, by lower bounds on the step time
/// of their candidates; each plan is the proven best of its kind (search_plans) and simulated. Errors as of search_each
/// (nearest_plan.h).
[[nodiscard]] std::vector<program::PlanResult> shortlist(const std::vector<PlanRequest>& requests, std::size_t count);

}  // namespace orrery::sim
