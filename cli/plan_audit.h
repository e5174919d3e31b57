// orrery plan --audit: simulates a sample of what the search excluded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/planner/planner.h"

namespace orrery::cli {

/// Audits the search of each request and prints what became of the sample. kExitJobFailed if an excluded plan is faster
/// than rank 1 by more than the error of a step time. Throws the first error if no request has a plan.
int audit_plans(const std::vector<sim::PlanRequest>& requests, const topologies::Cluster& cluster, std::size_t top,
                std::size_t samples, std::uint64_t seed);

}  // namespace orrery::cli
