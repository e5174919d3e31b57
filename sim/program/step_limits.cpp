#include "sim/program/step_limits.h"

#include <algorithm>

#include "core/index.h"

namespace orrery::program {
namespace {

using models::WorkClass;

constexpr auto kLimitNames = name_table<Limit::memory_activations>(
    {"compute", "memory_bandwidth", "recomputation", "host", "pipeline_bubble", "tp_communication", "cp_communication",
     "ep_communication", "dp_communication", "pp_communication", "tp_communication_between_nodes",
     "cp_communication_between_nodes", "ep_communication_between_nodes", "dp_communication_between_nodes",
     "pp_communication_between_nodes", "memory_states", "memory_activations"});

Limit of_axis(GroupAxis axis, bool between_nodes) {
    switch (axis) {
        case GroupAxis::tp:
        case GroupAxis::kv:
            return between_nodes ? Limit::tp_nic : Limit::tp_communication;
        case GroupAxis::cp:
            return between_nodes ? Limit::cp_nic : Limit::cp_communication;
        case GroupAxis::ep:
        case GroupAxis::etp:
            return between_nodes ? Limit::ep_nic : Limit::ep_communication;
        case GroupAxis::dp:
        case GroupAxis::dp_shard:
        case GroupAxis::dp_replicate:
        case GroupAxis::edp:
        case GroupAxis::model:
        case GroupAxis::world:
            return between_nodes ? Limit::dp_nic : Limit::dp_communication;
        case GroupAxis::embedding:
        case GroupAxis::pipeline:
        case GroupAxis::down_forward:
        case GroupAxis::down_backward:
        case GroupAxis::up_forward:
        case GroupAxis::up_backward:
            break;
    }
    return between_nodes ? Limit::pp_nic : Limit::pp_communication;
}

Limit of_cell(const WorkCell& cell) {
    switch (cell.work) {
        case WorkClass::communication:
            return of_axis(cell.axis, cell.between_nodes);
        case WorkClass::tp_wait:
            return of_axis(GroupAxis::tp, cell.between_nodes);
        case WorkClass::hidden:
            return of_axis(cell.axis, cell.between_nodes);
        case WorkClass::copy:
        case WorkClass::host:
        case WorkClass::launch:
        case WorkClass::host_layer:
        case WorkClass::tp_layer:
        case WorkClass::host_step:
            return Limit::host;
        case WorkClass::product:
        case WorkClass::expert_product:
        case WorkClass::attention:
        case WorkClass::attention_product:
            return cell.pass == WorkPass::recomputation ? Limit::recomputation : Limit::compute;
        case WorkClass::attention_memory:
        case WorkClass::norm:
        case WorkClass::elementwise:
        case WorkClass::embedding:
        case WorkClass::loss:
        case WorkClass::routing:
        case WorkClass::optimizer:
        case WorkClass::cast:
            break;
    }
    return cell.pass == WorkPass::recomputation ? Limit::recomputation : Limit::memory_bandwidth;
}

}  // namespace

std::string_view name_of(Limit limit) {
    return kLimitNames[limit];
}

std::vector<LimitShare> step_shares(const Sensitivity& sensitivity, double bubble_fraction) {
    EnumArray<Limit, double, kLimitCount> seconds{};
    double total = 0;
    for (const auto& [cell, derivative] : sensitivity) {
        if (derivative <= 0) continue;
        seconds[of_cell(cell)] += derivative;
        total += derivative;
    }
    if (total <= 0) return {};
    std::vector<LimitShare> shares;
    if (bubble_fraction > 0) shares.push_back({Limit::pipeline_bubble, bubble_fraction});
    for (const Limit limit : enum_values<Limit, kLimitCount>()) {
        if (seconds[limit] > 0) shares.push_back({limit, (1 - bubble_fraction) * seconds[limit] / total});
    }
    std::stable_sort(shares.begin(), shares.end(),
                     [](const LimitShare& a, const LimitShare& b) { return a.share > b.share; });
    return shares;
}

}  // namespace orrery::program
