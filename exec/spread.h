// How the duration of each instruction varies over the measured steps of a run.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/interpreter.h"

namespace orrery::exec {

/// The spread of each span over the steps from `warm_up` on that have spans.
[[nodiscard]] std::vector<program::SpanSpread> spreads_of(const std::vector<StepTimes>& steps, std::int64_t warm_up);

}  // namespace orrery::exec
