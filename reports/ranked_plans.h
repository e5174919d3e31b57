// What the planner found, best first.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "sim/program/plan_result.h"

namespace orrery::reports {

/// A table of the feasible plans in the order given, at most `max_rows` of them, and what stood in the way of the
/// others, reason by reason. Ends in a newline.
[[nodiscard]] std::string ranked_plans_text(std::span<const program::PlanResult> results, std::size_t max_rows = 20);

/// `orrery.plans/1`: every result under "plans" in the order given, each with its whole `orrery.plan/1`. Figures of a
/// plan that is not feasible are null, except its peak memory where known. Ends in a newline.
[[nodiscard]] std::string ranked_plans_json(std::span<const program::PlanResult> results);

}  // namespace orrery::reports
