// The search for the best plan that uses at most a number of devices. Few numbers factor into degrees that divide model
// and batch: of 1,000 devices a plan uses 992 or 960, and the others are spares.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>

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
