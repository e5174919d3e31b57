// One row for each pipeline schedule: where its chunks stand, what becomes of the backward pass, its order, and what
// follows for memory and search. A new schedule is a value and the declaration of its order here, a row in
// schedule_table.cpp, and the order in a file of its own or in schedule_orders.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::program {

enum class Schedule : std::uint8_t {
    naive,  // layer-wise model parallel: one micro-batch passes forward and back before the next begins
    gpipe,
    one_f_one_b,
    interleaved,  // 1F1B over several chunks a rank
    zb_h1,
    zb_h2,
    zb_1p,  // the automatic zero-bubble scheduler under the activation memory of 1F1B
    zb_2p,  //   and under twice that
    zb_v,
    dualpipe,
    dualpipe_v,
};
inline constexpr int kScheduleCount = static_cast<int>(Schedule::dualpipe_v) + 1;
[[nodiscard]] std::string name_of(Schedule schedule);
/// By name_of's name; throws InputError with the names that exist.
[[nodiscard]] Schedule schedule_named(const std::string& name);

/// Which virtual stages the chunks of rank r hold, of p ranks.
enum class ChunkPlacement : std::uint8_t {
    looped,          // chunk * p + r
    v,               // r, then 2p-1-r: the first and the last stage share rank 0
    two_directions,  // r of one copy of the model and p-1-r of another, which begins on rank p-1
};

/// How a backward pass is done: whole (B), as the gradient of the input and later that of the weights (I, W), or one
/// way in one place of the order and the other way in another.
enum class BackwardPass : std::uint8_t { whole, split, either };

struct ComputeTask;
struct ScheduleShape;

struct ScheduleRow {
    Schedule schedule{};
    std::string_view name;
    /// What publications call it, in lower case and without hyphens, separated by "|".
    std::string_view published_as;
    ChunkPlacement placement = ChunkPlacement::looped;
    std::int64_t chunks = 1;  // of each rank; kAnyChunks: 2 or more
    BackwardPass backward = BackwardPass::whole;
    /// What rank `rank` computes, in order. nullptr: the order is searched for all ranks at once, from the shape's
    /// times, under the activations of search_depths * p micro-batches.
    std::vector<ComputeTask> (*order)(const ScheduleShape& shape, std::int64_t rank) = nullptr;
    std::int64_t search_depths = 0;
    /// What it asks of a shape beyond its chunks: empty, or the broken rule in one sentence. nullptr: nothing.
    std::string (*problem)(const ScheduleShape& shape) = nullptr;
    /// All forward passes come before the first backward, so what is alive grows with the micro-batches. Otherwise it
    /// stays as it is from settled_depths * p + settled_more micro-batches on.
    bool keeps_all_alive = false;
    std::int64_t settled_depths = 1, settled_more = 0;
    /// Between warm-up and cool-down neighbours keep each other's pace: a rank's round lasts as long as the slowest's.
    bool has_rounds = true;
    bool is_searched = false;  // by the planner, unless schedules are asked for

    static constexpr std::int64_t kAnyChunks = 0;
    [[nodiscard]] bool splits_backward() const { return backward != BackwardPass::whole; }
    [[nodiscard]] bool depends_on_times() const { return order == nullptr; }
    [[nodiscard]] std::int64_t fewest_chunks() const { return chunks == kAnyChunks ? 2 : chunks; }
    [[nodiscard]] bool is_looped() const { return placement == ChunkPlacement::looped; }
    /// Of one copy of the model.
    [[nodiscard]] std::int64_t virtual_stages(std::int64_t ranks, std::int64_t chunks_of_rank) const {
        return placement == ChunkPlacement::two_directions ? ranks : ranks * chunks_of_rank;
    }
    [[nodiscard]] std::int64_t model_copies() const { return placement == ChunkPlacement::two_directions ? 2 : 1; }
};
[[nodiscard]] const ScheduleRow& row_of(Schedule schedule);

// Orders that follow from ranks, chunks and micro-batches alone (symbols: schedule.h), each for one rank.

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
/// A zero_bubble_order of p-1-r and r, so that every rank holds the activations of p micro-batches.
[[nodiscard]] std::vector<ComputeTask> zb_h1_order(const ScheduleShape& shape, std::int64_t rank);
/// 2(p-1-r) and 2r, for 2p-1.
[[nodiscard]] std::vector<ComputeTask> zb_h2_order(const ScheduleShape& shape, std::int64_t rank);
[[nodiscard]] std::vector<ComputeTask> zb_v_order(const ScheduleShape& shape, std::int64_t rank);
[[nodiscard]] std::vector<ComputeTask> dualpipe_order(const ScheduleShape& shape, std::int64_t rank);
[[nodiscard]] std::vector<ComputeTask> dualpipe_v_order(const ScheduleShape& shape, std::int64_t rank);

// ScheduleRow::problem of those that ask for more than their chunks.
[[nodiscard]] std::string interleaved_problem(const ScheduleShape& shape);
[[nodiscard]] std::string dualpipe_problem(const ScheduleShape& shape);
[[nodiscard]] std::string dualpipe_v_problem(const ScheduleShape& shape);

}  // namespace orrery::program
