// Private to the planner: what the candidates of a search were, and what is outside of them.
#pragma once

#include "sim/planner/candidates.h"
#include "sim/planner/planner.h"
#include "sim/program/search_summary.h"

namespace orrery::sim {

/// The values that the listed candidates have, and the techniques that none of them has.
[[nodiscard]] program::SearchSpace space_of(const PlanRequest& request, const CandidateList& list);

}  // namespace orrery::sim
