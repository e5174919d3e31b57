// Why a request has no candidates, in a word.
#pragma once

#include "sim/planner/planner.h"
#include "sim/program/obstacle.h"

namespace orrery::sim {

/// Of a request that fixes tp, pp and dp and has no candidate: the first rule that these degrees break.
[[nodiscard]] program::Obstacle obstacle_to(const PlanRequest& request);

}  // namespace orrery::sim
