// Private to the planner: a sample of the candidates that a search excluded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/planner/candidates.h"
#include "sim/planner/planner.h"

namespace orrery::sim {

struct PrunedCandidate {
    Choice choice;
    double least_step_s = 0;  // that a simulation would find, by the bounds known so far
};
/// Candidates excluded in the same way.
struct Pruned {
    std::string excluded_by;
    std::int64_t candidates = 0;
    std::vector<PrunedCandidate> sample;
};

/// search_plans with proof of the best plan, and a sample of what it excluded, of about `samples` candidates.
[[nodiscard]] PlanSearch search_plans(const PlanRequest& request, const topologies::Cluster& cluster, std::size_t keep,
                                      std::size_t samples, std::uint64_t seed, std::vector<Pruned>& pruned);

}  // namespace orrery::sim
