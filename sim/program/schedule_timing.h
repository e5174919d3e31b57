// What an order of tasks costs by itself: every task takes its stage's time and every transfer the same time, nothing
// contends. The automatic schedulers rank candidates by it, and the published closed forms are checked against it.
#pragma once

#include <string>
#include <vector>

#include "sim/program/schedule.h"

namespace orrery::program {

struct RankTiming {
    double begin = 0, end = 0;  // of the first and the last task
    double busy = 0;
    /// Micro-batches whose activations the rank holds at most, in units of one full stage: a chunk counts 1/v, in
    /// dualpipe 1. Taken when F starts; B and W release all of it, I what W does not need (activation_after_input).
    double peak_in_flight = 0;
};

struct ScheduleTiming {
    /// Empty when every task ran; otherwise the first task, by rank, that waits for ever.
    std::string stuck;
    double makespan = 0;
    std::vector<RankTiming> ranks;
    /// Longest time between the first and the last task of a rank: what a step costs when steps follow each other
    /// without a barrier (the cost of arXiv 2401.10241).
    [[nodiscard]] double longest_span() const;
};

/// Runs the orders with the shape's times. A chunk takes 1/v of its stage's time, in dualpipe all of it; B takes I + W.
/// A block of overlapping tasks begins when the inputs of both are there and delivers both outputs at its end, after
/// the sum of their times: what overlapping gains is for the machine to say, not for the order.
[[nodiscard]] ScheduleTiming time_orders(const ScheduleShape& shape,
                                         const std::vector<std::vector<ComputeTask>>& orders);

}  // namespace orrery::program
