// The planner's results, best first.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "sim/program/plan_result.h"
#include "sim/program/search_summary.h"

namespace orrery::reports {

/// A table of the feasible plans in the order given, at most `max_rows` of them, and the reasons why the others are not
/// feasible. A plan that cannot be told apart from the first one by the model's known error (PlanResult::to_first) has
/// "=" beside its rank. Ends in a newline.
[[nodiscard]] std::string ranked_plans_text(std::span<const program::PlanResult> results, std::size_t max_rows = 20);

/// `orrery.plans/2`: what the search looked at and proves, and every result under "plans" in the order given, each with
/// its whole `orrery.plan/1`. Figures of infeasible plans are null, except the peak memory if it is known.
/// "left_out_of_model" lists what the model lacks of its file. Ends in a newline.
[[nodiscard]] std::string ranked_plans_json(std::span<const program::PlanResult> results,
                                            const program::SearchSummary& search);

}  // namespace orrery::reports
