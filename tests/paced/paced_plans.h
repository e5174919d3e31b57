// The plans that are paced: those of the parity matrix, and wider ones.
#pragma once

#include <vector>

#include "sim/program/plan.h"

namespace orrery::paced {

/// Of every schedule, kind of data parallelism, sequence and context parallelism, on up to sixteen ranks; on this
/// machine's kind of rank, and some on GPUs, whose streams run by themselves.
[[nodiscard]] std::vector<program::Plan> all_plans();
/// One of each, for every test run.
[[nodiscard]] std::vector<program::Plan> few_plans();

}  // namespace orrery::paced
