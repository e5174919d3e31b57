// Private to the planner: how long a plan's step takes.
#pragma once

#include <cstdint>

#include "sim/cost/roofline_cost.h"
#include "sim/program/plan_result.h"
#include "topologies/cluster.h"

namespace orrery::sim {

/// Step time and what derives from it. A plan with very many micro-batches for its depth is not simulated whole but
/// extrapolated from two runs with fewer: once a pipeline has settled, the step is affine in their number. Even stages
/// settle at once. Uneven ones may run ahead for a while, on the slack of the boundary buffers, before the slowest sets
/// the pace; what comes so late is a small difference, so that the step is right to 2e-3 (to 1e-4 for most plans).
[[nodiscard]] program::PlanResult timed(const program::Plan& plan, const topologies::Cluster& cluster,
                                        const RooflineCost& cost);
/// How sure the result's step time is, from one simulation with derivatives.
void add_interval(const topologies::Cluster& cluster, const RooflineCost& cost, program::PlanResult& result);
[[nodiscard]] bool is_simulated_whole(const program::Plan& plan);

/// Fills in the peak, whether it is within what a rank may use, and if not why.
void check_fit(std::int64_t peak_bytes, std::int64_t allowed_bytes, program::PlanResult& result);

}  // namespace orrery::sim
