// Private to the planner: exact memory and a lower bound on the step time from a lowering with few micro-batches,
// without simulating.
#pragma once

#include <cstdint>

#include "sim/cost/roofline_cost.h"
#include "sim/program/plan_answers.h"
#include "sim/program/program.h"
#include "topologies/cluster.h"

namespace orrery::sim {

struct LoweredBounds {
    /// Peak memory of the fullest rank, context included. It equals that of the whole plan: in steady state every
    /// schedule but GPipe keeps the same number of micro-batches in flight, and with GPipe each further micro-batch
    /// adds the same bytes. For zb-1p and zb-2p it is an estimate, since their order is searched anew for each number
    /// of micro-batches.
    std::int64_t peak_memory_bytes = 0;
    /// Lower bound on the step time; 0 for torch DataParallel. Host time is left out. The maximum of
    ///   - the critical path through the schedule's dependencies, from the first computation of the first stage to the
    ///     end of its optimizer, with each pass as long as in isolation (IsolatedTimes) and the waits for sends that
    ///     are fused with receives (PassOrders);
    ///   - for each rank, all its passes, the part of the gradient reduction that cannot overlap the last pass, and the
    ///     optimizer;
    ///   - unless backward passes are split, for each rank, the ramp to it, all its passes, and the first rank's tail;
    ///   - for each rank, all communication on its busiest stream, and all of its collectives on its NIC;
    /// where data-parallel communication delays the passes that it runs beside (ComputeDraws).
    double least_step_s = 0;
};
[[nodiscard]] LoweredBounds lowered_bounds(const program::Plan& plan, const topologies::Cluster& cluster,
                                           const RooflineCost& cost);
/// The lowering that the bounds are read from.
class FewMicroBatches {
  public:
    explicit FewMicroBatches(program::Plan plan);
    [[nodiscard]] const program::Program& program() const { return program_; }
    [[nodiscard]] std::int64_t peak_memory_bytes() const { return peak_memory_bytes_; }
    [[nodiscard]] LoweredBounds bounds(const topologies::Cluster& cluster, const RooflineCost& cost) const;

  private:
    program::Plan plan_;
    program::Program program_;
    std::int64_t peak_memory_bytes_ = 0;
};
/// LoweredBounds::peak_memory_bytes alone.
[[nodiscard]] std::int64_t lowered_memory_bytes(const program::Plan& plan);

/// LoweredBounds::peak_memory_bytes with its parts; allowed_bytes is 0.
[[nodiscard]] program::MemoryNeed lowered_memory_need(const program::Plan& plan);

/// Device memory in use at the peak of a rank of the class, context included (program::DeviceMemory).
[[nodiscard]] std::int64_t peak_memory_bytes(const program::Program& program, const program::RankClass& rank_class);

}  // namespace orrery::sim
