// What a search for plans looked at, and what it proves.
#pragma once

#include <span>
#include <string>

#include "sim/program/plan_result.h"
#include "sim/program/search_summary.h"

namespace orrery::reports {

/// "663,471 plans considered, 164,832 of them one by one; …"
[[nodiscard]] std::string search_counts_text(const program::SearchCounts& counts);
/// What is proven about the order of the results, then the values that were searched and what is outside, a line each
/// for every implementation. Ends in a newline.
[[nodiscard]] std::string proof_text(std::span<const program::PlanResult> results,
                                     const program::SearchSummary& search);

}  // namespace orrery::reports
