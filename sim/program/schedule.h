// Pipeline schedules: the order in which each rank of a pipeline computes, and nothing else. Transfers are added by the
// lowering.
//
// Symbols: p ranks, r a rank, v chunks of each rank, m micro-batches; F, I, W the forward, the gradient of the input
// and the gradient of the weights of a micro-batch on one stage; B = I and W together.
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
    std::int32_t chunk = 0;  // of this rank, 0..chunks-1
    std::int32_t micro_batch = 0;
    bool overlaps_previous = false;  // DualPipe's F&B: one overlapped block with the task before it
    bool operator==(const ComputeTask&) const = default;
};

/// Durations of one stage (all chunks of a rank; dualpipe: one copy of the stage), in any common unit.
struct StageTimes {
    double forward = 1, input = 1, weight = 1;
    bool operator==(const StageTimes&) const = default;
};

/// What a schedule needs to know of the pipeline.
struct ScheduleShape {
    Schedule schedule{};
    std::int64_t ranks = 1;          // p
    std::int64_t chunks = 1;         // v; zb_v, dualpipe and dualpipe_v: 2; interleaved: at least 2; others: 1
    std::int64_t micro_batches = 1;  // m; dualpipe: of both directions together
    std::int64_t group = 0;          // interleaved: micro-batches that pass a chunk before the next chunk; 0: p
    // The rest is read by the automatic schedulers (zb_1p, zb_2p) and by time_orders; only ratios matter.
    double forward_time = 1, input_time = 1, weight_time = 1;
    double transfer_time = 0;  // of activations or gradients to a neighbour
    /// Share of a micro-batch's activations that W still needs once I has run: M_W / M_B of the Zero Bubble paper,
    /// whose Table 1 has 32sbh / (34sbh + 5abs^2) for a block. 1: nothing is freed before W, which never promises
    /// memory that an implementation without a split release would not have.
    double activation_after_input = 1.0;
    std::vector<StageTimes> times;  // of each rank, where ranks differ; empty: the three above for all
};
/// The plan's pipeline, without durations.
[[nodiscard]] ScheduleShape schedule_shape(const Plan& plan);
/// `times` of the rank, or the common ones.
[[nodiscard]] StageTimes stage_times(const ScheduleShape& shape, std::int64_t rank);

/// Where a chunk stands in the pipeline.
struct ChunkPlace {
    std::int64_t virtual_stage = 0;  // in the order in which a micro-batch passes
    bool up = false;                 // its forward flows from rank r to rank r-1
    std::int32_t direction = 0;      // dualpipe has two copies of the model; copy 1 begins on rank p-1
    bool operator==(const ChunkPlace&) const = default;
};
/// Looped (interleaved): virtual stage chunk*p + r. V (zb_v, dualpipe_v): r, then 2p-1-r. dualpipe: stage r of
/// direction 0, then stage p-1-r of direction 1; micro-batches 0..m/2-1 take direction 0, the others direction 1.
[[nodiscard]] ChunkPlace chunk_place(const ScheduleShape& shape, std::int64_t rank, std::int64_t chunk);
/// Of one copy of the model.
[[nodiscard]] std::int64_t virtual_stages(const ScheduleShape& shape);
struct StageHolder {
    std::int64_t rank = 0, chunk = 0;
    bool operator==(const StageHolder&) const = default;
};
/// The inverse of chunk_place.
[[nodiscard]] StageHolder stage_holder(const ScheduleShape& shape, std::int64_t virtual_stage, std::int32_t direction);

/// Empty when the schedule exists for this shape; otherwise the broken rule in one sentence that names the schedule.
[[nodiscard]] std::string schedule_problem(const ScheduleShape& shape);

/// One list a rank: what the rank computes in one step, in order. The shape must be without problem. Sources:
/// gpipe: Huang et al. 2019; one_f_one_b and interleaved: Narayanan et al. 2021, in Megatron-LM's order; zb_h1, zb_h2,
/// zb_1p, zb_2p: Qi et al. 2023 (arXiv 2401.10241), zb_h1 in PyTorch's order; zb_v: Qi et al. 2024 (arXiv 2405.15362);
/// dualpipe and dualpipe_v: DeepSeek-V3 report (arXiv 2412.19437) and its published implementation.
[[nodiscard]] std::vector<std::vector<ComputeTask>> compute_orders(const ScheduleShape& shape);

}  // namespace orrery::program
