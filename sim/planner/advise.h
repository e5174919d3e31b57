// Why the best plan takes as long as it does: what single changes of the plan and of its inputs would do, and what
// would make a plan fit on the meshes on which none does. Everything is lowered and simulated.
#pragma once

#include <cstddef>
#include <vector>

#include "sim/planner/planner.h"
#include "sim/program/plan_answers.h"

namespace orrery::sim {

/// Changed inputs of the best plan: twice the global batch; half and twice the sequence with as many tokens a step;
/// half and twice the devices with the same global batch, by the data-parallel degree; twice the bandwidth inside
/// nodes, and between them; half as much memory again; another precision; another implementation. Otherwise the plan
/// stays the same, except that with more memory the fastest of advice.plan_changes that then fits takes its place. What
/// the plan's rules refuse is left out. By tokens/s of a device, most first.
[[nodiscard]] std::vector<program::WhatIf> input_changes(const program::PlanAdvice& advice);

/// Explains the first of the results of a search of these requests. Of the meshes on which nothing fits, the
/// `most_meshes` that need the least memory are explained.
[[nodiscard]] program::PlanAdvice advise(const std::vector<program::PlanResult>& results,
                                         const std::vector<PlanRequest>& requests, std::size_t most_meshes);

/// Sets PlanResult::fix of the `most` results that are nearest to fitting and do not fit, where there is one.
void add_fixes(std::vector<program::PlanResult>& results, const std::vector<PlanRequest>& requests, std::size_t most);

}  // namespace orrery::sim
