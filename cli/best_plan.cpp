#include "cli/best_plan.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/plan_search.h"
#include "core/error.h"
#include "sim/planner/at_most.h"
#include "sim/planner/one_plan.h"

namespace orrery::cli {
namespace {

std::vector<sim::PlanRequest> restricted(std::vector<sim::PlanRequest> requests,
                                         const std::optional<program::Plan>& only) {
    if (!only) return requests;
    std::erase_if(requests, [&](const sim::PlanRequest& request) {
        return request.implementation.name != only->implementation.name;
    });
    for (sim::PlanRequest& request : requests) sim::restrict_to(*only, request);
    return requests;
}

BestPlan best_of(sim::PlanSearch search, const PlanJob& job, const models::ModelSpec& model) {
    if (search.results.empty() || !search.results.front().feasible) {
        throw InfeasibleError(model.name + ": no plan on at most " + std::to_string(job.devices) + " devices fits");
    }
    const program::SearchCounts counts = sim::summary_of(search).counts;
    return {std::move(search.results.front()), counts};
}

}  // namespace

BestPlan best_plan(const PlanJob& job, const models::ModelSpec& model, const std::optional<program::Plan>& only) {
    std::vector<std::string> notes;
    try {
        const topologies::ClusterSpec spec = topologies::load_cluster(job.cluster, job.devices);
        const topologies::Cluster cluster(spec);
        const auto search = [&](const sim::PlanRequest& request, std::span<const double> rivals) {
            return sim::search_plans(request, cluster, 1, 1, rivals);
        };
        return best_of(search_each(restricted(requests_of(job, model, spec), only), 1, search, notes), job, model);
    } catch (const InputError&) {
        // No plan has exactly as many devices. Errors in the job are thrown again.
        const auto search = [](const sim::PlanRequest& request, std::span<const double> rivals) {
            return sim::search_at_most(request, 1, 1, rivals);
        };
        return best_of(search_each(restricted(requests_for_any_size(job, model), only), 1, search, notes), job, model);
    }
}

}  // namespace orrery::cli
