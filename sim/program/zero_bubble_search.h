// The automatic zero-bubble scheduler (Qi et al. 2023, arXiv 2401.10241, section 3.1): it builds one greedy schedule
// for each combination of a few options and returns the best.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program/schedule.h"

namespace orrery::program {

/// Orders for a pipeline with one chunk per rank in which no rank holds the activations of more than `in_flight_limit`
/// micro-batches at once (a micro-batch between I and W counts activation_after_input). Uses the shape's times.
///
/// The best order has the shortest makespan, and among those the shortest longest span of a rank. The candidates
/// include 1F1B, ZB-H1 and ZB-H2 if the limit permits them, and all candidates for half the limit, so that zb_2p is
/// never worse than zb_1p, and zb_1p never worse than zb_h1 or 1F1B.
[[nodiscard]] std::vector<std::vector<ComputeTask>> search_zero_bubble(const ScheduleShape& shape,
                                                                       std::int64_t in_flight_limit);

}  // namespace orrery::program
