// Private to the planner: merging searches that minimise something else than the step time.
#pragma once

#include <cstddef>
#include <functional>

#include "sim/planner/planner.h"

namespace orrery::sim {

/// As merge, by the least value in place of the least step time; both least_open_s are in its unit.
void merge_by(PlanSearch& into, PlanSearch from, std::size_t keep,
              const std::function<double(const program::PlanResult&)>& value);

}  // namespace orrery::sim
