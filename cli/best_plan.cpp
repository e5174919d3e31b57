#include "cli/best_plan.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/plan_search.h"
#include "core/error.h"
#include "sim/planner/at_most.h"

namespace orrery::cli {
namespace {

sim::Offload offload_of(const program::MemorySavings& memory) {
    if (memory.offload_layers > 0) return sim::Offload::activations;
    if (memory.offload_parameters) return sim::Offload::parameters;
    return memory.offload_optimizer ? sim::Offload::optimizer : sim::Offload::none;
}

/// Allows nothing but the plan's choices; the replicas, and how many blocks are recomputed or offloaded, are open.
void restrict_to(const program::Plan& plan, sim::PlanRequest& request) {
    const program::Parallelism& p = plan.parallelism;
    request.tp = p.tp;
    request.pp = p.pp;
    request.cp = p.cp;
    request.ep = p.ep;
    request.etp = p.etp;
    request.chunks = p.chunks;
    request.micro_batch_size = plan.training.micro_batch_size;
    request.schedules = {p.schedule};
    request.data_parallel = {p.data_parallel};
    request.vocabulary_parallel = {p.vocabulary_parallel};
    request.stage_layers = p.stage_layers;
    request.recompute = {plan.training.memory.recompute};
    request.training.memory.recompute_parts = plan.training.memory.recompute_parts;
    request.offload = {offload_of(plan.training.memory)};
    request.dp_shard = p.dp_shard;
    if (p.shards_parameters()) request.reshard_after_forward = p.reshard_after_forward;
    request.pp_before_dp = p.order == sim::kStagesBeforeReplicas;
    request.overlaps_experts = p.overlaps_experts;
    request.tries_shard_groups = false;
    request.tries_part_sets = false;
}

std::vector<sim::PlanRequest> restricted(std::vector<sim::PlanRequest> requests,
                                         const std::optional<program::Plan>& only) {
    if (!only) return requests;
    std::erase_if(requests, [&](const sim::PlanRequest& request) {
        return request.implementation.name != only->implementation.name;
    });
    for (sim::PlanRequest& request : requests) restrict_to(*only, request);
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
