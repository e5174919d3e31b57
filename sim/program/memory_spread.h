// How sure a predicted peak of device memory is.
#pragma once

#include "sim/program/plan.h"
#include "sim/program/rate_spread.h"

namespace orrery::program {

struct MemoryOutlook {
    double low_gib = 0, high_gib = 0;  // 90% interval
    double fit_probability = 1;        // that what is in use stays within the device's memory
};
/// Of a device of the plan's with so much in use. log(measured / predicted) is taken as a Student distribution with 4
/// degrees of freedom whose scale is the spread's for the stack, as of step times. Whether a plan fits is decided by
/// the prediction itself; this says how sure that is. Where the host computes, what is allocated is known: an interval
/// of no width.
[[nodiscard]] MemoryOutlook memory_outlook(double in_use_gib, const Plan& plan,
                                           const RateSpread& spread = built_in_spread());

/// Of a Student distribution with 4 degrees of freedom.
[[nodiscard]] double student4_below(double t);

}  // namespace orrery::program
