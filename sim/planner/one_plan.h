// The planner's figures for a plan that is given, the search for a better one with the same inputs, and the search for
// the same one on other numbers of devices.
#pragma once

#include <optional>

#include "sim/planner/planner.h"

namespace orrery::sim {

/// As the planner's results: step time with its interval, memory, utilization, shares. `feasible` is false if it does
/// not fit; its times are those of a device with enough memory.
[[nodiscard]] program::PlanResult predict(const program::Plan& plan, const topologies::Cluster& cluster,
                                          std::optional<double> memory_margin_gib = {});

/// A search for any plan of the same implementation that trains the same model with the same batch, precision and
/// optimizer on as many devices of the same cluster. On clusters of CPUs what the executor runs.
[[nodiscard]] PlanRequest request_like(const program::Plan& plan);

/// Allows nothing but the plan's choices; the replicas, and how many blocks are recomputed or offloaded, are open.
void restrict_to(const program::Plan& plan, PlanRequest& request);

}  // namespace orrery::sim
