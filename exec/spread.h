// What the measured steps of a run say of each instruction.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/interpreter.h"

namespace orrery::exec {

/// Of each span, over the steps from `warm_up` on that kept their spans.
[[nodiscard]] std::vector<program::SpanSpread> spreads_of(const std::vector<StepTimes>& steps, std::int64_t warm_up);

}  // namespace orrery::exec
