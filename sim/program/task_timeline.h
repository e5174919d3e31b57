// Private to the lowerings: a nominal timeline of a pipeline's tasks (F, I, W take one unit each, transfers take none).
// A buffer is reused only after its last use in this timeline. So every wait for a buffer goes back in time in one
// possible execution, and waits for buffers cannot form a cycle, whatever the real durations are.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program/order_replay.h"

namespace orrery::program {

/// The order of a rank's transfers and computations.
struct TransferRules {
    /// Receives are posted one computation ahead, so that the transfer overlaps it. Otherwise a receive is fused with
    /// the preceding send into one call, and the next computation comes after both.
    bool posts_receives_ahead = true;
    /// Vocabulary parallelism: S (one barrier, interlaced) computes the last stage's gradient, not T.
    bool gradient_from_forward = false;
};

class TaskTimeline {
  public:
    TaskTimeline(const ScheduleShape& shape, const std::vector<std::vector<ComputeTask>>& orders, TransferRules rules);

    [[nodiscard]] double begin(std::int64_t rank, std::size_t task) const { return replay_.of_rank(rank)[task].begin; }
    [[nodiscard]] double end(std::int64_t rank, std::size_t task) const { return replay_.of_rank(rank)[task].end; }
    /// The time at which the task's receive is posted.
    [[nodiscard]] double posted(std::int64_t rank, std::size_t task) const;
    /// The time at which the task's output has arrived at the next stage (forward) or the previous one (backward): the
    /// task has ended and the receiver has posted its receive.
    [[nodiscard]] double arrival(std::int64_t rank, std::size_t task) const;

  private:
    TransferRules rules_;
    OrderReplay replay_;
};

}  // namespace orrery::program
