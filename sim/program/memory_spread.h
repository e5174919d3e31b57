// The uncertainty of a predicted peak of device memory.
#pragma once

#include "sim/program/plan.h"
#include "sim/program/rate_spread.h"

namespace orrery::program {

struct MemoryOutlook {
    double low_gib = 0, high_gib = 0;  // 90% interval
    double fit_probability = 1;        // probability that the peak stays within the device's memory
};
/// The outlook for a predicted peak of `in_use_gib` on a device of the plan. As for step times, log(measured /
/// predicted) follows a Student distribution with 4 degrees of freedom, whose scale is the spread of the plan's
/// implementation. The prediction alone decides whether a plan fits; this is its confidence. If the host computes, the
/// allocations are known exactly, and the interval has no width.
[[nodiscard]] MemoryOutlook memory_outlook(double in_use_gib, const Plan& plan,
                                           const RateSpread& spread = built_in_spread());

/// The cumulative distribution function of the Student distribution with 4 degrees of freedom.
[[nodiscard]] double student4_below(double t);

}  // namespace orrery::program
