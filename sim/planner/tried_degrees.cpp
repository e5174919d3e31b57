#include "sim/planner/tried_degrees.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "sim/program/plan_fields.h"

namespace orrery::sim {

using program::Obstacle;

bool lays_out_stages(const PlanRequest& request) {
    const models::Support& supports = request.implementation.supports;
    return supports.source.empty() || supports.stage_layouts;
}

std::int64_t most_stages(const PlanRequest& request) {
    return request.model.layers + (lays_out_stages(request) ? 2 : 0);
}

bool TriedDegrees::has_axis(const char* name, std::int64_t degree, std::int64_t asked) const {
    const models::Support& supports = request_.implementation.supports;
    return degree == 1 || asked > 1 || supports.source.empty() || models::Support::lists(supports.axes, name);
}

/// Cheaper than making a plan for check_plan.
std::optional<Obstacle> TriedDegrees::obstacle_to_tensor(std::int64_t tp) const {
    if (!has_axis("tp", tp, request_.tp)) return Obstacle::implementation;
    if (model_.heads % tp != 0) return Obstacle::heads;
    if (model_.kv_heads % tp != 0 && tp % model_.kv_heads != 0) return Obstacle::kv_heads;
    if (!model_.has_experts() && model_.ffn_hidden % tp != 0) return Obstacle::ffn;
    return {};
}

std::optional<Obstacle> TriedDegrees::obstacle_to_pipeline(std::int64_t pp) const {
    if (!has_axis("pp", pp, request_.pp)) return Obstacle::implementation;
    if (pp > most_stages(request_)) return Obstacle::layers;
    return {};
}

bool TriedDegrees::context(std::int64_t cp) const {
    if (!has_axis("cp", cp, request_.cp)) return false;
    if (request_.cp != 0) return cp == request_.cp;
    const std::int64_t length = request_.training.sequence_length;
    return cp == 1 || (length % cp == 0 && length / cp >= kLeastContextPositions);
}

std::vector<std::int64_t> TriedDegrees::expert_degrees() const {
    std::vector<std::int64_t> degrees = divisors(model_.has_experts() ? model_.moe.expert_count : 1);
    std::erase_if(degrees,
                  [&](std::int64_t ep) { return !is_wanted(request_.ep, ep) || !has_axis("ep", ep, request_.ep); });
    return degrees;
}

std::vector<std::int64_t> TriedDegrees::expert_tensor_degrees(std::int64_t tp) const {
    if (request_.etp != 0) return {request_.etp};
    if (!request_.tries_expert_tensor || !model_.has_experts() || !has_axis("etp", 2, 0)) return {1};
    std::vector<std::int64_t> degrees = divisors(tp);
    std::erase_if(degrees, [&](std::int64_t etp) { return model_.moe.expert_ffn_hidden % etp != 0; });
    return degrees;
}

bool TriedDegrees::sequence_parallel(bool on, std::int64_t tp) const {
    return on ? tp > 1 : tp == 1 || !model_.has_experts();
}

bool TriedDegrees::is_too_large(std::int64_t micro_batch) const {
    return micro_batch * request_.training.sequence_length > program::kLargestMicroBatchTokens;
}

std::string TriedDegrees::missing_axes() const {
    std::string text;
    for (const char* name : {"tp", "pp", "cp", "ep"}) {
        if (!has_axis(name, 2, 0)) text += std::string(text.empty() ? "" : ", ") + "no " + name;
    }
    return text.empty() ? "" : "; implementation \"" + request_.implementation.name + "\" has " + text;
}

std::vector<Choice> TriedDegrees::layer_cuts() const {
    std::vector<Choice> cuts;
    const std::int64_t batch = request_.training.global_batch_size;
    for (std::int64_t tp = 1; tp <= std::min(model_.heads, request_.devices); ++tp) {
        if (!tensor(tp)) continue;
        for (std::int64_t cp = 1; tp * cp <= request_.devices; ++cp) {
            if (!context(cp)) continue;
            for (const std::int64_t ep : expert_degrees()) {
                for (const std::int64_t etp : expert_tensor_degrees(tp)) {
                    const std::int64_t experts = ep * etp;
                    Choice cut{.dp = experts / std::gcd(experts, tp * cp), .tp = tp, .cp = cp, .ep = ep, .etp = etp};
                    if (batch % cut.dp != 0 || cut.dp * tp * cp > request_.devices) continue;
                    for (const std::int64_t size : divisors(batch / cut.dp)) {
                        if (!is_wanted(request_.micro_batch_size, size) || is_too_large(size)) continue;
                        cut.micro_batch = size;
                        add_cut(cut, cuts);
                    }
                }
            }
        }
    }
    return cuts;
}

/// Adds the cut without and with sequence parallelism, as far as a plan may have it.
void TriedDegrees::add_cut(Choice cut, std::vector<Choice>& cuts) const {
    for (const bool on : {false, true}) {
        cut.sequence_parallel = on;
        if (!sequence_parallel(on, cut.tp)) continue;
        // A plan on several nodes has to fill them; replicas do.
        const std::int64_t per_node = request_.cluster.devices_per_node, ranks = cut.dp * cut.tp * cut.cp;
        const std::int64_t times = per_node / std::gcd(per_node, ranks);
        program::Plan plan = plan_of(request_, cut);
        plan.parallelism.dp *= times;
        plan.training.global_batch_size = plan.parallelism.dp * cut.micro_batch;
        if (!plan.cluster.ranks_may_share_devices()) plan.cluster.nodes = ranks * times / per_node;
        try {
            program::check_plan(plan, "the request");
            cuts.push_back(cut);
        } catch (const InputError&) {  // no plan cuts layers in this way
        }
    }
}

}  // namespace orrery::sim
