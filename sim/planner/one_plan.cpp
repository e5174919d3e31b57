#include "sim/planner/one_plan.h"

#include "sim/planner/lowered_bounds.h"
#include "sim/planner/timing.h"

namespace orrery::sim {

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

}  // namespace orrery::sim
