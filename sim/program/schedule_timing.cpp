#include "sim/program/schedule_timing.h"

#include <algorithm>

#include "sim/program/task_timeline.h"

namespace orrery::program {
namespace {

/// The part of a micro-batch's activations that a task takes, or if negative releases.
double activations_of(const ComputeTask& task, double after_input) {
    using Kind = ComputeTask::Kind;
    return task.kind == Kind::forward          ? 1
           : task.kind == Kind::backward       ? -1
           : task.kind == Kind::backward_input ? -(1 - after_input)
                                               : -after_input;
}

}  // namespace

double ScheduleTiming::longest_span() const {
    double longest = 0;
    for (const RankTiming& rank : ranks) longest = std::max(longest, rank.end - rank.begin);
    return longest;
}

ScheduleTiming time_orders(const ScheduleShape& shape, const std::vector<std::vector<ComputeTask>>& orders) {
    const double chunk_share =
        static_cast<double>(row_of(shape.schedule).model_copies()) / static_cast<double>(shape.chunks);
    const TaskTimeline timeline(shape, orders, chunk_share);
    ScheduleTiming result{.stuck = timeline.stuck()};
    for (std::int64_t r = 0; r < shape.ranks; ++r) {
        RankTiming& rank = result.ranks.emplace_back();
        const std::vector<TaskTimeline::TimeSpan>& spans = timeline.of_rank(r);
        if (!spans.empty()) rank = {.begin = spans.front().begin, .end = spans.back().end};
        double in_flight = 0;
        for (std::size_t t = 0; t < spans.size(); ++t) {
            const ComputeTask& task = orders[static_cast<std::size_t>(r)][t];
            in_flight += chunk_share * activations_of(task, shape.activation_after_input);
            rank.peak_in_flight = std::max(rank.peak_in_flight, in_flight);
        }
        result.makespan = std::max(result.makespan, rank.end);
    }
    return result;
}

}  // namespace orrery::program
