// Private to the planner: which parts of a block selective recomputation computes again.
#pragma once

#include <vector>

#include "sim/cost/roofline_cost.h"
#include "sim/planner/candidates.h"
#include "topologies/cluster.h"

namespace orrery::sim {

/// Sets of parts on the Pareto front of the time they add and the memory they free, each with one more part than the
/// one before; the part that frees the most bytes per second of recomputation comes first. {0}, for selective_parts(),
/// if the request names parts or does not ask for others.
[[nodiscard]] std::vector<PartSet> part_sets(const PlanRequest& request, const topologies::Cluster& cluster,
                                             const RooflineCost& cost);

}  // namespace orrery::sim
