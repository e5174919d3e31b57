// Checks a search by simulating a sample of what it excluded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "sim/planner/planner.h"

namespace orrery::sim {

/// Candidates that were excluded in the same way, and what became of a sample of them.
struct AuditStratum {
    std::string excluded_by;      // the bound that was too high, or "memory"
    std::int64_t candidates = 0;  // excluded
    std::int64_t sampled = 0;
    std::int64_t too_large = 0;                                    // of the sample: do not fit in memory
    std::int64_t simulated = 0;                                    // of the sample: fit
    double least_ratio = std::numeric_limits<double>::infinity();  // shortest simulated step over that of rank 1
    std::vector<std::string> faster;       // plans that fit and are faster than rank 1 by more than kStepTolerance
    std::vector<std::string> below_bound;  // plans that fit and are faster than their bound
};
struct Audit {
    PlanSearch search;
    std::vector<AuditStratum> strata;
};
/// Calls work(0) to work(count - 1), in any order and from any thread.
using RunAll = std::function<void(std::size_t count, const std::function<void(std::size_t)>& work)>;

/// Searches for the best plan and simulates `samples` of the excluded candidates, drawn evenly from each way of being
/// excluded. Candidates of a pipeline or a block that was excluded as a whole are drawn with any micro-batch size,
/// sharding and recomputation that the request allows. Equal arguments give equal results. Throws like search_plans.
[[nodiscard]] Audit audit_search(const PlanRequest& request, const topologies::Cluster& cluster, std::size_t keep,
                                 std::size_t samples, std::uint64_t seed, const RunAll& run_all);

}  // namespace orrery::sim
