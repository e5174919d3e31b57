// Private to the planner: what can be said of a plan from a few of its micro-batches, without simulating anything.
#pragma once

#include <cstdint>

#include "sim/cost/roofline_cost.h"
#include "sim/program/program.h"

namespace orrery::sim {

struct Sketch {
    /// Of the fullest rank, context included. Exactly that of the whole plan: 1F1B keeps at most a pipeline's depth of
    /// micro-batches; of GPipe each further one adds the same bytes.
    std::int64_t peak_memory_bytes = 0;
    /// No step is shorter. With F, B a stage's compute time for one micro-batch, m micro-batches and O the optimizer of
    /// stage 0, one step of stage 0 lasts at least, for each stage r,
    ///   sum over i < r of (F_i + B_i)  +  m (F_r + B_r)  +  O:
    /// the first micro-batch reaches stage r through the stages before it, the last gradient returns through them, and
    /// stage 0 begins the next step only then. Communication and the host are left out.
    double least_step_s = 0;
};
[[nodiscard]] Sketch sketch(const program::Plan& plan, const RooflineCost& cost);

/// The plan with fewer (or more) micro-batches.
[[nodiscard]] program::Plan with_micro_batches(const program::Plan& plan, std::int64_t micro_batches);

/// Peak of one rank class, context included: on CPU ranks what the executor allocates, on a GPU what is alive at once,
/// since a device's allocator reuses what is free.
[[nodiscard]] std::int64_t peak_memory_bytes(const program::Program& program, const program::RankClass& rank_class);

/// Of parameters, gradients and optimizer states, context included, on the fullest rank: at least this.
[[nodiscard]] double least_state_bytes(const program::Plan& plan);

}  // namespace orrery::sim
