#include "sim/planner/one_plan.h"

#include "sim/planner/lowered_bounds.h"
#include "sim/planner/timing.h"

namespace orrery::sim {
namespace {

Offload offload_of(const program::MemorySavings& memory) {
    if (memory.offload_layers > 0) return Offload::activations;
    if (memory.offload_parameters) return Offload::parameters;
    return memory.offload_optimizer ? Offload::optimizer : Offload::none;
}

}  // namespace

program::PlanResult predict(const program::Plan& plan, const topologies::Cluster& cluster,
                            std::optional<double> memory_margin_gib) {
    const RooflineCost cost(plan.cluster, plan.rates);
    program::PlanResult result = timed(plan, cluster, cost);
    add_derivatives(cluster, cost, result);
    check_fit(lowered_memory_bytes(plan), memory_per_rank_bytes(plan, memory_margin_gib), result);
    return result;
}

PlanRequest request_like(const program::Plan& plan) {
    PlanRequest request;
    request.model = plan.model;
    request.cluster = plan.cluster;
    request.implementation = plan.implementation;
    request.devices = plan.parallelism.world_size();
    request.rates = plan.rates;
    request.training = plan.training;
    request.training.memory = {};
    request.training.micro_batch_size = 1;
    if (plan.cluster.ranks_may_share_devices()) {
        request.cp = 1;
    } else {
        allow_every_technique(request);
    }
    return request;
}

void restrict_to(const program::Plan& plan, PlanRequest& request) {
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
    request.pp_before_dp = p.order == kStagesBeforeReplicas;
    request.overlaps_experts = p.overlaps_experts;
    request.tries_shard_groups = false;
    request.tries_part_sets = false;
}

}  // namespace orrery::sim
