// The search for the best plan that uses at most a number of devices. Few numbers factor into degrees that divide model
// and batch: of 1,000 devices a plan uses 992 or 960, and the others are spares.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "sim/planner/planner.h"

namespace orrery::sim {

/// The best plans on at most request.devices devices, by branch and bound over the numbers of devices that are whole
/// nodes (or part of one node) and have a plan. A plan on n devices takes at least C / n, where C is the least time of
/// the step's computation on one device over all ways to cut layers and batch; so numbers are looked at in descending
/// order until this bound exceeds the step time to beat. Numbers looked at are searched in the order of the least bound
/// of their pipelines (as in search_plans), until that exceeds it too. `request.cluster` may have any number of nodes.
/// `keep`, `prove` and `rivals` are those of search_plans, whose guarantee holds over all numbers of devices. Throws
/// what search_plans throws for the largest number if no number has a plan. Results state their spare_devices;
/// least_open_s also bounds the plans on numbers that were not searched.
[[nodiscard]] PlanSearch search_at_most(const PlanRequest& request, std::size_t keep, std::size_t prove,
                                        std::span<const double> rivals = {});

/// A factor of the step time by the number of devices, such as the price of a second on them.
using StepWeight = std::function<double(std::int64_t devices)>;
[[nodiscard]] double weighed_step(const program::PlanResult& result, const StepWeight& weight);

/// As search_at_most, with the least product of step time and weight in place of the least step time; `rivals` and
/// PlanSearch::least_open_s are such products. The same bounds hold, multiplied by the weights: a number's by its own,
/// and that of the numbers not looked at yet by the least weight a device of any of them. Plans whose step exceeds
/// request.most_step_s take no part; if there are no others, there is no result.
[[nodiscard]] PlanSearch search_weighed(const PlanRequest& request, const StepWeight& weight, std::size_t keep,
                                        std::size_t prove, std::span<const double> rivals = {});
/// Merges the weighed search of another implementation.
void merge_weighed(PlanSearch& into, PlanSearch from, const StepWeight& weight, std::size_t keep);
/// Of the feasible results, ascending: the rivals of the next search.
[[nodiscard]] std::vector<double> weighed_steps(const PlanSearch& search, const StepWeight& weight);

/// The request on another number of devices; no value if they are not whole nodes (or part of one node), if the fabric
/// has no room for them, or if no plan divides them.
[[nodiscard]] std::optional<PlanRequest> on_devices(const PlanRequest& request, std::int64_t devices);

/// No limit on the numbers that are tried.
inline constexpr std::int64_t kEveryNumber = std::numeric_limits<std::int64_t>::max();
/// The largest number of devices up to `most` that on_devices accepts, among the `tries` largest whose degrees divide.
[[nodiscard]] std::optional<std::int64_t> usable_at_most(const PlanRequest& request, std::int64_t most,
                                                         std::int64_t tries = kEveryNumber);
/// The smallest such number from `least` to twice as many.
[[nodiscard]] std::optional<std::int64_t> usable_at_least(const PlanRequest& request, std::int64_t least,
                                                          std::int64_t tries = kEveryNumber);

}  // namespace orrery::sim
