// Private to the lowerings: a nominal timeline of a pipeline's tasks (F, I, W take one unit each, transfers take none).
// A buffer is reused only after its last use in this timeline. So every wait for a buffer goes back in time in one
// possible execution, and waits for buffers cannot form a cycle, whatever the real durations are.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program/schedule.h"

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

    [[nodiscard]] double begin(std::int64_t rank, std::size_t task) const { return spans_[at(rank)][task].begin; }
    [[nodiscard]] double end(std::int64_t rank, std::size_t task) const { return spans_[at(rank)][task].end; }
    /// The time at which the task's receive is posted.
    [[nodiscard]] double posted(std::int64_t rank, std::size_t task) const;
    /// The time at which the task's output has arrived at the next stage (forward) or the previous one (backward): the
    /// task has ended and the receiver has posted its receive.
    [[nodiscard]] double arrival(std::int64_t rank, std::size_t task) const;

  private:
    struct TimeSpan {
        double begin = 0, end = -1;
    };
    struct Place {
        std::int64_t rank = -1;
        std::size_t task = 0;
    };
    [[nodiscard]] static std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }
    void index_tasks();
    void run();
    [[nodiscard]] double ready(std::int64_t rank, const ComputeTask& task) const;
    [[nodiscard]] double vocabulary_ready(std::int64_t rank, const ComputeTask& task) const;
    /// The time at which the pass of the chunk's micro-batch has ended on all ranks; < 0: not yet known.
    [[nodiscard]] double ended_everywhere(bool forward, ChunkIndex chunk, std::int32_t micro_batch) const;
    [[nodiscard]] double ended(const Place& place) const;
    [[nodiscard]] const Place& place_of(bool forward, std::int64_t rank, ChunkIndex chunk,
                                        std::int32_t micro_batch) const;
    [[nodiscard]] Place neighbour(std::int64_t rank, const ComputeTask& task, std::int64_t shift, bool forward) const;

    const ScheduleShape& shape_;
    const std::vector<std::vector<ComputeTask>>& orders_;
    bool posts_ahead_ = true;               // TransferRules::posts_receives_ahead
    std::int64_t chunks_ = 1;               // chunks per rank, including those of the vocabulary
    bool gradient_from_correction_ = true;  // T computes the last stage's gradient
    bool has_vocabulary_ = false;
    std::vector<std::vector<TimeSpan>> spans_;
    std::vector<Place> forwards_, backwards_;  // by rank, chunk, micro-batch; backwards are B or I
};

}  // namespace orrery::program
