// Private to the planner: what can be said of a plan from a few of its micro-batches, without simulating anything.
#pragma once

#include <cstdint>

#include "sim/cost/roofline_cost.h"
#include "sim/program/program.h"
#include "topologies/cluster.h"

namespace orrery::sim {

struct Sketch {
    /// Of the fullest rank, context included. Exactly that of the whole plan: every schedule but GPipe keeps the same
    /// micro-batches alive once it has settled; of GPipe each further one adds the same bytes. Of zb-1p and zb-2p,
    /// whose order is found anew for each number of micro-batches, an estimate.
    std::int64_t peak_memory_bytes = 0;
    /// No step is shorter. The largest of
    ///   the way from the first computation of the first stage through the schedule's dependencies, each pass lasting
    ///   as in isolation (see IsolatedTimes), to the end of its optimizer: it begins the next step only then; of each
    ///   rank, all its passes, behind the last one what of the reduction of gradients it cannot run beside, and the
    ///   optimizer; with backward passes in one, also the ramp to and from it; of each rank, all that it puts on one
    ///   stream of communication.
    /// The host is left out.
    double least_step_s = 0;
};
[[nodiscard]] Sketch sketch(const program::Plan& plan, const topologies::Cluster& cluster, const RooflineCost& cost);
/// The first half of it.
[[nodiscard]] std::int64_t sketched_memory_bytes(const program::Plan& plan);

/// What a rank of the class holds of its device at its peak, context included (program::DeviceMemory).
[[nodiscard]] std::int64_t peak_memory_bytes(const program::Program& program, const program::RankClass& rank_class);

}  // namespace orrery::sim
