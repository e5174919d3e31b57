// Private to the schedules and the lowerings: the time of each task of given orders without contention. A task begins
// when its rank is free and its inputs are there, among them those from passes of the vocabulary (vocabulary.h). A
// block of overlapped tasks begins when all its inputs have arrived, takes the sum of the tasks' times, and delivers
// all outputs at its end.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "sim/program/schedule.h"
#include "sim/program/transfer_rules.h"

namespace orrery::program {

class TaskTimeline {
  public:
    static constexpr double kVocabularyTime = 0.25;

    /// The nominal timeline: F, I, W take one unit each, transfers take none. A buffer is reused only after its last
    /// use in this timeline. So every wait for a buffer goes back in time in one possible execution, and waits for
    /// buffers cannot form a cycle, whatever the real durations are. No task may wait forever. `orders` must outlive
    /// the timeline.
    TaskTimeline(const ScheduleShape& shape, const std::vector<std::vector<ComputeTask>>& orders, TransferRules rules);
    /// The times are those of `shape`. F, I and W of a chunk take `chunk_share` of their stage's, B takes I + W, and a
    /// pass of the vocabulary kVocabularyTime.
    TaskTimeline(ScheduleShape shape, const std::vector<std::vector<ComputeTask>>& orders, double chunk_share,
                 TransferRules rules = {});

    struct TimeSpan {
        double begin = 0, end = 0;
    };
    /// The times of the rank's tasks, in order, up to the one for which it waits forever.
    [[nodiscard]] const std::vector<TimeSpan>& of_rank(std::int64_t rank) const { return spans_[at(rank)]; }
    /// Empty if every task ran; otherwise the task at which the first stuck rank waits forever.
    [[nodiscard]] std::string stuck() const;

    [[nodiscard]] double begin(std::int64_t rank, std::size_t task) const { return of_rank(rank)[task].begin; }
    [[nodiscard]] double end(std::int64_t rank, std::size_t task) const { return of_rank(rank)[task].end; }
    /// The time at which the task's receive is posted.
    [[nodiscard]] double posted(std::int64_t rank, std::size_t task) const;
    /// The time at which the task's output has arrived at the next stage (forward) or the previous one (backward): the
    /// task has ended and the receiver has posted its receive.
    [[nodiscard]] double arrival(std::int64_t rank, std::size_t task) const;
    /// Whether a task waits for the send of an earlier one, if receives are not posted ahead. Waiting for a send whose
    /// receive is posted only when the task is due could deadlock.
    [[nodiscard]] bool awaits_send(std::int64_t rank, std::size_t task, std::size_t sender) const {
        return arrival(rank, sender) <= begin(rank, task);
    }

  private:
    static constexpr double kNever = std::numeric_limits<double>::infinity();
    static constexpr std::size_t kNoTask = std::numeric_limits<std::size_t>::max();

    [[nodiscard]] static std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }
    [[nodiscard]] bool is_vocabulary(const ComputeTask& task) const { return task.chunk.value() >= shape_.chunks; }
    /// B and I of a micro-batch have the same index; W has none.
    [[nodiscard]] std::size_t index_of(std::int64_t rank, const ComputeTask& task) const;
    /// Runs the rank's next task or block; returns false if an input is missing or no task is left.
    [[nodiscard]] bool advance(std::int64_t rank);
    [[nodiscard]] double duration(std::int64_t rank, const ComputeTask& task) const;
    /// The time at which the inputs of the rank's task number `t` are there.
    [[nodiscard]] double ready(std::int64_t rank, std::size_t t) const;
    [[nodiscard]] double vocabulary_ready(std::int64_t rank, const ComputeTask& task) const;
    [[nodiscard]] double ended(std::int64_t rank, const ComputeTask& task) const;
    [[nodiscard]] double ended_everywhere(const ComputeTask& task) const;
    /// The holder of the stage `step` virtual stages after the chunk's.
    [[nodiscard]] std::optional<StageHolder> neighbour(std::int64_t rank, ChunkIndex chunk, std::int64_t step) const;

    ScheduleShape shape_;
    const std::vector<std::vector<ComputeTask>>& orders_;
    double chunk_share_;
    TransferRules rules_;
    std::int64_t chunks_;                 // of a rank, including those of the vocabulary
    std::vector<std::size_t> positions_;  // of F, B and I in the order of their rank, by index_of
    std::vector<std::vector<TimeSpan>> spans_;
};

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

/// The automatic schedulers rank candidates by this, and tests compare it with published closed forms. Runs the orders
/// with the shape's times: a chunk takes 1/v of its stage's time, in dualpipe all of it. What overlapped tasks gain
/// depends on the device and is not modelled.
[[nodiscard]] ScheduleTiming time_orders(const ScheduleShape& shape,
                                         const std::vector<std::vector<ComputeTask>>& orders);

}  // namespace orrery::program
