// The time of an order of tasks without contention: every task takes its stage's time and every transfer the same time.
// The automatic schedulers rank candidates by it, and tests compare it with published closed forms.
#pragma once

#include <string>
#include <vector>

#include "sim/program/schedule.h"

namespace orrery::program {

struct RankTiming {
    double begin = 0, end = 0;  // begin of the first task, end of the last
    /// The most micro-batches whose activations the rank holds at once, in units of one stage: a chunk counts 1/v, in
    /// dualpipe 1. F takes activations, I releases the share that W does not need (activation_after_input), and B and W
    /// release the rest.
    double peak_in_flight = 0;
};

struct ScheduleTiming {
    /// Empty if every task ran; otherwise the task at which the first stuck rank waits forever.
    std::string stuck;
    double makespan = 0;
    std::vector<RankTiming> ranks;
    /// The longest time from the begin of a rank's first task to the end of its last: the time of a step if steps
    /// follow each other without a barrier (the cost in arXiv 2401.10241).
    [[nodiscard]] double longest_span() const;
};

/// Runs the orders with the shape's times. A chunk takes 1/v of its stage's time, in dualpipe all of it; B takes I + W.
/// A block of overlapped tasks begins when all its inputs have arrived, takes the sum of the tasks' times, and delivers
/// all outputs at its end: what the overlap gains depends on the device and is not modelled here.
[[nodiscard]] ScheduleTiming time_orders(const ScheduleShape& shape,
                                         const std::vector<std::vector<ComputeTask>>& orders);

}  // namespace orrery::program
