// Pipeline schedules: only the order in which each pipeline rank computes. The lowering adds the transfers.
//
// Symbols: p ranks, r a rank, v chunks of each rank, m micro-batches; F, I, W: the forward, the gradient of the input
// and the gradients of the weights of a micro-batch on one stage; B = I and W together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/program/plan.h"

namespace orrery::program {

struct ComputeTask {
    enum class Kind : std::uint8_t {
        forward,
        backward,         // I and W in one
        backward_input,   // I
        backward_weight,  // W
    } kind{};
    ChunkIndex chunk = 0;
    std::int32_t micro_batch = 0;
    bool overlaps_previous = false;  // forms one overlapped block with the previous task (F&B of DualPipe)
    bool operator==(const ComputeTask&) const = default;
};

/// The first forward and the last backward (or W) of a chunk in a step, as indices of tasks.
struct EndTasks {
    std::size_t first_forward = 0, last_backward = 0;
};
[[nodiscard]] IndexedVector<ChunkIndex, EndTasks> end_tasks(const std::vector<ComputeTask>& order, std::size_t chunks);

/// Durations of one stage (all chunks of a rank; dualpipe: one of the rank's two chunks), in any common unit.
struct StageTimes {
    double forward = 1, input = 1, weight = 1;
    bool operator==(const StageTimes&) const = default;
};

/// The properties of the pipeline that decide a schedule.
struct ScheduleShape {
    Schedule schedule{};
    std::int64_t ranks = 1;          // p
    std::int64_t chunks = 1;         // v; zb_v, dualpipe and dualpipe_v: 2; interleaved: at least 2; others: 1
    std::int64_t micro_batches = 1;  // m; dualpipe: both directions together
    std::int64_t group = 0;          // interleaved: consecutive micro-batches on one chunk; 0: p
    /// Forwards and backwards stand in pairs of independent passes, which form blocks (Parallelism::overlaps_experts).
    /// Where they would not be independent, one more forward comes first.
    bool pairs_passes = false;
    // Only the automatic schedulers (zb_1p, zb_2p) and time_orders read the rest. Only ratios of the times matter.
    double forward_time = 1, input_time = 1, weight_time = 1;
    double transfer_time = 0;  // of activations or gradients to a neighbouring rank
    /// Share of a micro-batch's activations that W still needs after I: M_W / M_B of the Zero Bubble paper, whose Table
    /// 1 has 32sbh / (34sbh + 5abs^2) for a block. 1 means that nothing is freed before W, which is safe for every
    /// implementation.
    double activation_after_input = 1.0;
    std::vector<StageTimes> times;  // by rank; empty: the three times above for all ranks
};
/// The shape of the plan's pipeline, without durations.
[[nodiscard]] ScheduleShape schedule_shape(const Plan& plan);
/// The rank's entry of `times`, or the common times if `times` is empty.
[[nodiscard]] StageTimes stage_times(const ScheduleShape& shape, std::int64_t rank);

/// The position of a chunk in the pipeline.
struct ChunkPlace {
    std::int64_t virtual_stage = 0;  // in the order in which a micro-batch passes the stages
    bool up = false;                 // its activations go from rank r to rank r-1
    std::int32_t direction = 0;      // dualpipe has two copies of the model; copy 1 begins on rank p-1
    bool operator==(const ChunkPlace&) const = default;
};
/// Looped (interleaved): virtual stage chunk*p + r. V (zb_v, dualpipe_v): r, then 2p-1-r. dualpipe: stage r of
/// direction 0, then stage p-1-r of direction 1; micro-batches 0..m/2-1 take direction 0, the others direction 1.
[[nodiscard]] ChunkPlace chunk_place(const ScheduleShape& shape, std::int64_t rank, ChunkIndex chunk);
/// The number of virtual stages of one copy of the model.
[[nodiscard]] std::int64_t virtual_stages(const ScheduleShape& shape);
struct StageHolder {
    std::int64_t rank = 0;
    ChunkIndex chunk = 0;
    bool operator==(const StageHolder&) const = default;
};
/// The inverse of chunk_place.
[[nodiscard]] StageHolder stage_holder(const ScheduleShape& shape, std::int64_t virtual_stage, std::int32_t direction);

/// Empty if the schedule exists for this shape; otherwise one sentence with the schedule and the broken rule.
[[nodiscard]] std::string schedule_problem(const ScheduleShape& shape);

/// For each rank the tasks that it computes in one step, in order. schedule_problem(shape) must be empty. Sources:
/// gpipe: Huang et al. 2019; one_f_one_b and interleaved: Narayanan et al. 2021, in Megatron-LM's order; zb_h1, zb_h2,
/// zb_1p, zb_2p: Qi et al. 2023 (arXiv 2401.10241), zb_h1 in PyTorch's order; zb_v: Qi et al. 2024 (arXiv 2405.15362);
/// dualpipe and dualpipe_v: DeepSeek-V3 report (arXiv 2412.19437) and its published implementation.
[[nodiscard]] std::vector<std::vector<ComputeTask>> compute_orders(const ScheduleShape& shape);

}  // namespace orrery::program
