#include "sim/planner/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/planner/lowered_bounds.h"
#include "sim/planner/pruned.h"
#include "sim/planner/timing.h"

namespace orrery::sim {
namespace {

/// What a sampled candidate needs and how long it takes.
struct Outcome {
    std::string name;
    bool fits = false;
    double step_time_s = 0;
};

Outcome outcome_of(const program::Plan& plan, std::int64_t limit_bytes, const topologies::Cluster& cluster,
                   const RooflineCost& cost) {
    Outcome outcome{.name = plan.name, .fits = lowered_memory_bytes(plan) <= limit_bytes};
    if (outcome.fits) outcome.step_time_s = timed(plan, cluster, cost).step_time_s;
    return outcome;
}

}  // namespace

Audit audit_search(const PlanRequest& request, const topologies::Cluster& cluster, std::size_t keep,
                   std::size_t samples, std::uint64_t seed, const RunAll& run_all) {
    std::vector<Pruned> pruned;
    Audit audit{.search = search_plans(request, cluster, keep, samples, seed, pruned)};
    std::vector<std::pair<std::size_t, const PrunedCandidate*>> drawn;  // stratum
    for (std::size_t s = 0; s < pruned.size(); ++s) {
        for (const PrunedCandidate& one : pruned[s].sample) drawn.emplace_back(s, &one);
    }
    std::vector<Outcome> outcomes(drawn.size());
    run_all(drawn.size(), [&](std::size_t i) {
        const RooflineCost cost(request.cluster, request.rates);
        const program::Plan plan = plan_of(request, drawn[i].second->choice);
        outcomes[i] = outcome_of(plan, audit.search.memory_limit_bytes, cluster, cost);
    });
    for (const Pruned& one : pruned) {
        audit.strata.push_back({.excluded_by = one.excluded_by, .candidates = one.candidates});
    }
    const double best_s = audit.search.results.front().step_time_s;
    for (std::size_t i = 0; i < drawn.size(); ++i) {
        AuditStratum& stratum = audit.strata[drawn[i].first];
        const Outcome& outcome = outcomes[i];
        ++stratum.sampled;
        ++(outcome.fits ? stratum.simulated : stratum.too_large);
        if (!outcome.fits) continue;
        const double ratio = outcome.step_time_s / best_s;
        stratum.least_ratio = std::min(stratum.least_ratio, ratio);
        if (ratio < 1 - kStepTolerance) stratum.faster.push_back(outcome.name);
        const double bound_s = drawn[i].second->least_step_s;
        if (outcome.step_time_s < bound_s) {
            stratum.below_bound.push_back(
                fmt::format("{}: {:.2f}%", outcome.name, 100 * (bound_s / outcome.step_time_s - 1)));
        }
    }
    return audit;
}

}  // namespace orrery::sim
