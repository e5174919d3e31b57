// The searches of several implementations.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "sim/planner/planner.h"

namespace orrery::cli {

/// A search of one implementation that competes with plans found before, by their step times (sim::search_plans).
using RivalSearch = std::function<sim::PlanSearch(const sim::PlanRequest&, std::span<const double> rivals)>;

/// Calls search(request) for each request. An implementation without a plan adds its error to `notes`. If none has a
/// plan, the first InfeasibleError is thrown, or else the first InputError.
void for_each_stack(const std::vector<sim::PlanRequest>& requests,
                    const std::function<void(const sim::PlanRequest&)>& search, std::vector<std::string>& notes);

/// The plans of several implementations, ranked together: the best `keep`. Each search competes with the plans of those
/// before it. Errors are those of for_each_stack.
[[nodiscard]] sim::PlanSearch search_each(const std::vector<sim::PlanRequest>& requests, std::size_t keep,
                                          const RivalSearch& search, std::vector<std::string>& notes);

}  // namespace orrery::cli
