// Searches for the smallest number of devices with which a job meets its goal.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sim/program/capacity_answer.h"

namespace orrery::sim {

struct SizeRange {
    std::int64_t least = 1;  // fewer devices cannot meet the goal
    std::int64_t most = 1;   // more are not allowed, spare ones not counted
    std::int64_t grain = 1;  // sizes are multiples of it
};

/// Sizes for these numbers of devices without the spare ones, in the same order.
using EvaluateSizes = std::function<std::vector<program::CapacitySize>(const std::vector<std::int64_t>&)>;
using MeetsGoal = std::function<bool(const program::CapacitySize&)>;

/// Sizes are doubled from `least` until one meets the goal, or until twice the devices hardly make the job faster. The
/// interval in which it lies is then cut into four until it is a 32nd of the size, or the grain. So the answer is right
/// to that if a size with which the goal is met is followed by none with which it is not, which may fail where a number
/// has few divisors. Sets CapacityAnswer::meets, limit, best and explored.
void find_smallest(const SizeRange& range, const EvaluateSizes& evaluate, const MeetsGoal& meets,
                   program::CapacityAnswer& answer);

}  // namespace orrery::sim
