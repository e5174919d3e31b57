// One row for each pipeline schedule: the placement of its chunks, whether it splits the backward pass, its order, and
// what follows for memory and for the planner's search. To add a schedule, add an enumerator and the declaration of its
// order here, a row in schedule_table.cpp, and the order in schedule_orders.cpp or a file of its own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/index.h"

namespace orrery::program {

enum class Schedule : std::uint8_t {
    naive,  // layer-wise model parallel: one micro-batch passes forward and back before the next begins
    gpipe,
    one_f_one_b,
    interleaved,  // 1F1B with several chunks per rank
    zb_h1,
    zb_h2,
    zb_1p,  // the automatic zero-bubble scheduler, limited to the activation memory of 1F1B
    zb_2p,  // the same with twice that limit
    zb_v,
    dualpipe,
    dualpipe_v,
};
inline constexpr int kScheduleCount = static_cast<int>(Schedule::dualpipe_v) + 1;
[[nodiscard]] std::string name_of(Schedule schedule);
/// The schedule with this name; throws InputError with the names that exist.
[[nodiscard]] Schedule schedule_named(const std::string& name);

/// The virtual stages of the chunks of rank r, for p ranks.
enum class ChunkPlacement : std::uint8_t {
    looped,          // chunk * p + r
    v,               // r, then 2p-1-r: the first and the last stage are on rank 0
    two_directions,  // r of one copy of the model and p-1-r of another, whose first stage is on rank p-1
};

/// How backward passes are executed: whole (B); split into the gradient of the input and later those of the weights (I,
/// W); or whole in some places of the order and split in others.
enum class BackwardPass : std::uint8_t { whole, split, either };

struct ComputeTask;
struct ScheduleShape;

struct ScheduleRow {
    Schedule schedule{};
    std::string_view name;
    /// Its names in publications, in lower case and without hyphens, separated by "|".
    std::string_view published_as;
    ChunkPlacement placement = ChunkPlacement::looped;
    std::int64_t chunks = 1;  // chunks per rank; kAnyChunks: 2 or more
    BackwardPass backward = BackwardPass::whole;
    /// The tasks of rank `rank`, in order. nullptr: the order of all ranks is searched together, using the shape's
    /// times, with at most search_depths * p micro-batches in flight.
    std::vector<ComputeTask> (*order)(const ScheduleShape& shape, std::int64_t rank) = nullptr;
    std::int64_t search_depths = 0;
    /// Checks rules beyond the number of chunks: empty, or the broken rule in one sentence. nullptr: no further rules.
    std::string (*problem)(const ScheduleShape& shape) = nullptr;
    /// All forward passes come before the first backward, so that live activations grow with the number of
    /// micro-batches. Otherwise they stay the same from settled_depths * p + settled_more micro-batches on.
    bool keeps_all_alive = false;
    std::int64_t settled_depths = 1, settled_more = 0;
    /// In steady state the ranks wait for each other in every round, so that all rounds last as long as the slowest
    /// rank's.
    bool has_rounds = true;
    bool is_searched = false;  // the planner tries it by default
    /// Its order has pairs of a forward and an independent backward, or has them if ScheduleShape::pairs_passes.
    bool has_pairs = false;

    static constexpr std::int64_t kAnyChunks = 0;
    [[nodiscard]] bool splits_backward() const { return backward != BackwardPass::whole; }
    [[nodiscard]] bool depends_on_times() const { return order == nullptr; }
    [[nodiscard]] std::int64_t fewest_chunks() const { return chunks == kAnyChunks ? 2 : chunks; }
    [[nodiscard]] bool is_looped() const { return placement == ChunkPlacement::looped; }
    /// The number of virtual stages of one copy of the model.
    [[nodiscard]] std::int64_t virtual_stages(std::int64_t ranks, std::int64_t chunks_of_rank) const {
        return placement == ChunkPlacement::two_directions ? ranks : ranks * chunks_of_rank;
    }
    [[nodiscard]] std::int64_t model_copies() const { return placement == ChunkPlacement::two_directions ? 2 : 1; }
};
extern const EnumArray<Schedule, ScheduleRow, kScheduleCount> kScheduleRows;  // row_of is called for every action
[[nodiscard]] inline const ScheduleRow& row_of(Schedule schedule) {
    return kScheduleRows[schedule];
}

// Orders that depend only on ranks, chunks and micro-batches, for one rank. The symbols are those of schedule.h.

/// F(0) B(0) F(1) B(1) …
[[nodiscard]] std::vector<ComputeTask> naive_order(const ScheduleShape& shape, std::int64_t rank);
/// F0..F(m-1), B0..B(m-1).
[[nodiscard]] std::vector<ComputeTask> gpipe_order(const ScheduleShape& shape, std::int64_t rank);
/// w = min(p-1-r, m) forwards, then F(w+i), B(i), then the remaining backwards.
[[nodiscard]] std::vector<ComputeTask> one_f_one_b_order(const ScheduleShape& shape, std::int64_t rank);
/// The table T lists (micro-batch, chunk) by group of G micro-batches, then by chunk, then by micro-batch of the group.
/// w = min(2(p-r-1) + (v-1)G, mv) forwards in the order of T, then F(T[w+k]) and B(T[k]), then the remaining backwards.
/// Backwards take the chunks in reverse.
[[nodiscard]] std::vector<ComputeTask> interleaved_order(const ScheduleShape& shape, std::int64_t rank);
/// zero_bubble_order with warm_up p-1-r and first_weight r: every rank holds the activations of p micro-batches.
[[nodiscard]] std::vector<ComputeTask> zb_h1_order(const ScheduleShape& shape, std::int64_t rank);
/// zero_bubble_order with warm_up 2(p-1-r) and first_weight 2r: every rank holds the activations of 2p-1 micro-batches.
[[nodiscard]] std::vector<ComputeTask> zb_h2_order(const ScheduleShape& shape, std::int64_t rank);
[[nodiscard]] std::vector<ComputeTask> zb_v_order(const ScheduleShape& shape, std::int64_t rank);
[[nodiscard]] std::vector<ComputeTask> dualpipe_order(const ScheduleShape& shape, std::int64_t rank);
[[nodiscard]] std::vector<ComputeTask> dualpipe_v_order(const ScheduleShape& shape, std::int64_t rank);

// Implementations of ScheduleRow::problem.
[[nodiscard]] std::string interleaved_problem(const ScheduleShape& shape);
[[nodiscard]] std::string dualpipe_problem(const ScheduleShape& shape);
[[nodiscard]] std::string dualpipe_v_problem(const ScheduleShape& shape);

}  // namespace orrery::program
