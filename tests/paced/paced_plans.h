// The plans of the paced tests: those of the parity tests, and wider ones.
#pragma once

#include <vector>

#include "sim/program/plan.h"

namespace orrery::paced {

/// Plans with every schedule and every kind of data, sequence and context parallelism, on up to sixteen ranks. Each is
/// there for CPU ranks and for GPUs, whose streams are asynchronous, except for bf16 plans, which are for GPUs only.
[[nodiscard]] std::vector<program::Plan> all_plans();
/// A few of them, for every test run.
[[nodiscard]] std::vector<program::Plan> few_plans();

}  // namespace orrery::paced
