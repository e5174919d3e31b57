// Private to the lowerings: a nominal timeline of a pipeline's tasks (F, I, W one unit each, transfers free). Buffers
// are reused only where it says that their last user has finished, so that every wait points back in one possible
// course of events: waits for buffers can then close no circle, however long things really take.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program/schedule.h"

namespace orrery::program {

/// How a rank's transfers stand to its computations.
struct TransferRules {
    /// Receives are posted one computation ahead, so that the transfer runs beside it. Otherwise a receive is posted
    /// with the send before it, as one fused call, and the next computation comes after both.
    bool posts_receives_ahead = true;
    /// Vocabulary parallelism: the last stage's gradient comes out of S (one barrier, interlaced), not of T.
    bool gradient_from_forward = false;
};

class TaskTimeline {
  public:
    TaskTimeline(const ScheduleShape& shape, const std::vector<std::vector<ComputeTask>>& orders, TransferRules rules);

    [[nodiscard]] double begin(std::int64_t rank, std::size_t task) const { return spans_[at(rank)][task].begin; }
    [[nodiscard]] double end(std::int64_t rank, std::size_t task) const { return spans_[at(rank)][task].end; }
    /// When the receive that the task needs is posted.
    [[nodiscard]] double posted(std::int64_t rank, std::size_t task) const;
    /// When what the task sends to the next stage (a forward) or to the one before has arrived: the receiver has
    /// posted.
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
    /// When the pass of the chunk's micro-batch has ended on all ranks; < 0: not yet.
    [[nodiscard]] double ended_everywhere(bool forward, std::int32_t chunk, std::int32_t micro_batch) const;
    [[nodiscard]] double ended(const Place& place) const;
    [[nodiscard]] const Place& place_of(bool forward, std::int64_t rank, std::int32_t chunk,
                                        std::int32_t micro_batch) const;
    [[nodiscard]] Place neighbour(std::int64_t rank, const ComputeTask& task, std::int64_t shift, bool forward) const;

    const ScheduleShape& shape_;
    const std::vector<std::vector<ComputeTask>>& orders_;
    bool posts_ahead_ = true;               // a receive is posted one task before the one that needs it
    std::int64_t chunks_ = 1;               // of a rank, vocabulary passes included
    bool gradient_from_correction_ = true;  // the last stage's gradient comes out of T
    bool has_vocabulary_ = false;
    std::vector<std::vector<TimeSpan>> spans_;
    std::vector<Place> forwards_, backwards_;  // by rank, chunk, micro-batch; backward: B or I
};

}  // namespace orrery::program
