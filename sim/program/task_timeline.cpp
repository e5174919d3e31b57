#include "sim/program/task_timeline.h"

#include <algorithm>

#include "core/error.h"

namespace orrery::program {

TaskTimeline::TaskTimeline(const ScheduleShape& shape, const std::vector<std::vector<ComputeTask>>& orders,
                           TransferRules rules)
    : rules_(rules),
      // F, I and W of every chunk take the one unit that a shape's times are by default.
      replay_({.schedule = shape.schedule,
               .ranks = shape.ranks,
               .chunks = shape.chunks,
               .micro_batches = shape.micro_batches},
              orders, 1, rules.gradient_from_forward) {
    ORRERY_CHECK(replay_.stuck().empty(), "the schedule waits forever at " + replay_.stuck());
}

double TaskTimeline::posted(std::int64_t rank, std::size_t task) const {
    if (task == 0) return 0;
    return rules_.posts_receives_ahead ? begin(rank, task - 1) : end(rank, task - 1);
}

double TaskTimeline::arrival(std::int64_t rank, std::size_t task) const {
    const double done = end(rank, task);
    const auto receiver = replay_.receiver(rank, task);
    return receiver ? std::max(done, posted(receiver->rank, receiver->task)) : done;
}

}  // namespace orrery::program
