// Private to the schedules: the orders that follow from ranks, chunks and micro-batches alone, each for one rank.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sim/program/schedule.h"

namespace orrery::program {

/// A list of tasks under construction.
class TaskList {
  public:
    explicit TaskList(std::int64_t expected) { tasks_.reserve(static_cast<std::size_t>(expected)); }
    void forward(std::int64_t micro_batch, std::int64_t chunk = 0) {
        add(ComputeTask::Kind::forward, micro_batch, chunk);
    }
    void backward(std::int64_t micro_batch, std::int64_t chunk = 0) {
        add(ComputeTask::Kind::backward, micro_batch, chunk);
    }
    void input(std::int64_t micro_batch, std::int64_t chunk = 0) {
        add(ComputeTask::Kind::backward_input, micro_batch, chunk);
    }
    void weight(std::int64_t micro_batch, std::int64_t chunk = 0) {
        add(ComputeTask::Kind::backward_weight, micro_batch, chunk);
    }
    /// The last task and the one before it form one block.
    void overlap_last() { tasks_.back().overlaps_previous = true; }
    [[nodiscard]] std::vector<ComputeTask> take() { return std::move(tasks_); }

  private:
    void add(ComputeTask::Kind kind, std::int64_t micro_batch, std::int64_t chunk) {
        tasks_.push_back({.kind = kind,
                          .chunk = static_cast<std::int32_t>(chunk),
                          .micro_batch = static_cast<std::int32_t>(micro_batch)});
    }
    std::vector<ComputeTask> tasks_;
};

/// F(0) B(0) F(1) B(1) …
[[nodiscard]] std::vector<ComputeTask> naive_order(const ScheduleShape& shape, std::int64_t rank);
/// F0..F(m-1), B0..B(m-1).
[[nodiscard]] std::vector<ComputeTask> gpipe_order(const ScheduleShape& shape, std::int64_t rank);
/// w = min(p-1-r, m) forwards, then F(w+i), B(i), then the remaining backwards.
[[nodiscard]] std::vector<ComputeTask> one_f_one_b_order(const ScheduleShape& shape, std::int64_t rank);
/// The table T runs over groups of G micro-batches, in each over the chunks, in each over the micro-batches of the
/// group. w = min(2(p-r-1) + (v-1)G, mv) forwards along T, then F(T[w+k]), B(T[k]) with the chunks in reverse, then the
/// remaining backwards.
[[nodiscard]] std::vector<ComputeTask> interleaved_order(const ScheduleShape& shape, std::int64_t rank);
/// `warm_up` forwards, then pairs F, I; from pair number `first_weight` on each pair is followed by the next W; the I
/// that remain are each followed by a W in the same way; the W that remain come last.
/// zb_h1: p-1-r and r, so that every rank holds the activations of p micro-batches; zb_h2: 2(p-1-r) and 2r, for 2p-1.
[[nodiscard]] std::vector<ComputeTask> zero_bubble_order(std::int64_t micro_batches, std::int64_t warm_up,
                                                         std::int64_t first_weight);
[[nodiscard]] std::vector<ComputeTask> zb_h1_order(const ScheduleShape& shape, std::int64_t rank);
[[nodiscard]] std::vector<ComputeTask> zb_h2_order(const ScheduleShape& shape, std::int64_t rank);
[[nodiscard]] std::vector<ComputeTask> zb_v_order(const ScheduleShape& shape, std::int64_t rank);
[[nodiscard]] std::vector<ComputeTask> dualpipe_order(const ScheduleShape& shape, std::int64_t rank);
[[nodiscard]] std::vector<ComputeTask> dualpipe_v_order(const ScheduleShape& shape, std::int64_t rank);

// ScheduleRow::problem of those that ask for more than their chunks.
[[nodiscard]] std::string interleaved_problem(const ScheduleShape& shape);
[[nodiscard]] std::string dualpipe_problem(const ScheduleShape& shape);
[[nodiscard]] std::string dualpipe_v_problem(const ScheduleShape& shape);

}  // namespace orrery::program
