// Private to the planner: what the search holds in its queue.
#pragma once

#include <array>
#include <cstdint>

#include "sim/program/plan.h"

namespace orrery::sim {

/// How well a node's bound is known, in the order in which bounds are refined.
enum class Rung : std::uint8_t {
    half,     // all pipelines on a mesh; bound from that of meshes with half of its tp, cp or etp
    mesh,     // the same; bound of their computation, shared evenly by the stages
    family,   // all micro-batch sizes of a pipeline; bound of its computation with the largest one
    block,    // all shardings and kinds of recomputation of a micro-batch size; bound of its computation
    misfit,   // a candidate that does not fit without recomputation, whose bound it has; all ways to save activations
    flat,     // a candidate; analytic bounds
    path,     // analytic bounds and the critical path
    traffic,  // the same beside the data-parallel communication
    lowered,  // a candidate that fits; bounds of a short lowering
    brief,    // the same; also the step of fewer micro-batches, extended (brief_step_s)
};

/// What excludes a node of each rung, if its bound is too high.
inline constexpr std::array<const char*, 10> kRungNames{"computation with half of a degree",
                                                        "computation on the mesh",
                                                        "computation of the pipeline",
                                                        "computation of the micro-batch size",
                                                        "analytic bound without recomputation",
                                                        "analytic bound",
                                                        "critical path",
                                                        "passes beside communication",
                                                        "short lowering",
                                                        "short simulation"};

/// Candidates that may still be among the best.
struct SearchNode {
    double least_step_s = 0;                                 // that a simulation would find, at least
    std::int64_t sequence = 0;                               // total order
    std::int32_t family = 0, micro_batch = 0, sharding = 0;  // indices
    std::int16_t part_set = 0;                               // selective recomputation: index
    std::int16_t layers = -1;                                // full recomputation or offload; -1: not decided yet
    program::Recompute recompute = program::Recompute::none;
    bool offloads = false;  // activations
    Rung rung = Rung::half;

    /// Whether the candidate recomputes or offloads a number of blocks.
    [[nodiscard]] bool has_layers() const { return offloads || recompute == program::Recompute::full; }
    /// Whether its turn takes milliseconds and depends on nothing but its choice.
    [[nodiscard]] bool is_long_work() const {
        return rung >= Rung::lowered || (rung == Rung::traffic && !has_layers());
    }
};

}  // namespace orrery::sim
