// Private to the schedules: helpers for building orders of tasks.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "sim/program/schedule.h"

namespace orrery::program {

/// A list of tasks under construction.
class TaskList {
  public:
    explicit TaskList(std::int64_t expected) { tasks_.reserve(static_cast<std::size_t>(expected)); }
    void forward(std::int64_t micro_batch, ChunkIndex chunk = 0) { add(Kind::forward, micro_batch, chunk); }
    void backward(std::int64_t micro_batch, ChunkIndex chunk = 0) { add(Kind::backward, micro_batch, chunk); }
    void input(std::int64_t micro_batch, ChunkIndex chunk = 0) { add(Kind::backward_input, micro_batch, chunk); }
    void weight(std::int64_t micro_batch, ChunkIndex chunk = 0) { add(Kind::backward_weight, micro_batch, chunk); }
    void append(const std::vector<ComputeTask>& tasks) { tasks_.insert(tasks_.end(), tasks.begin(), tasks.end()); }
    /// Joins the last two tasks into one overlapped block.
    void overlap_last() { tasks_.back().overlaps_previous = true; }
    [[nodiscard]] std::vector<ComputeTask> take() { return std::move(tasks_); }

  private:
    using Kind = ComputeTask::Kind;
    void add(Kind kind, std::int64_t micro_batch, ChunkIndex chunk) {
        tasks_.push_back({.kind = kind, .chunk = chunk, .micro_batch = static_cast<std::int32_t>(micro_batch)});
    }
    std::vector<ComputeTask> tasks_;
};

/// `warm_up` forwards, then pairs of F and I, then the remaining I, and finally the remaining W. From the I of
/// micro-batch `first_weight` on, each I is followed by the next W.
[[nodiscard]] std::vector<ComputeTask> zero_bubble_order(std::int64_t micro_batches, std::int64_t warm_up,
                                                         std::int64_t first_weight);

}  // namespace orrery::program
