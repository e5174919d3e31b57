// The automatic zero-bubble scheduler (Qi et al. 2023, arXiv 2401.10241, section 3.1): a greedy schedule per setting of
// a few switches, and the best of the grid.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program/schedule.h"

namespace orrery::program {

/// Orders for a pipeline without chunks in which no rank ever holds the activations of more than `in_flight_limit`
/// micro-batches (a micro-batch between I and W counts activation_after_input). Reads the shape's times.
///
/// What is best: the shortest makespan, then the shortest longest span of a rank. The candidates hold 1F1B, ZB-H1 and
/// ZB-H2 as far as the limit admits them, and everything found under half the limit, so zb_2p is never worse than
/// zb_1p, nor zb_1p worse than zb_h1 or 1F1B.
[[nodiscard]] std::vector<std::vector<ComputeTask>> search_zero_bubble(const ScheduleShape& shape,
                                                                       std::int64_t in_flight_limit);

}  // namespace orrery::program
