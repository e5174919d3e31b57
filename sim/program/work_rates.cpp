#include "sim/program/work_rates.h"

#include <algorithm>
#include <cmath>

namespace orrery::program {

using models::WorkClass;

namespace {

/// Work of the stack's kernels that is limited by memory bandwidth.
bool is_elementwise(WorkClass work) {
    using enum WorkClass;
    constexpr std::array kClasses{attention_memory, norm, elementwise, embedding, loss, routing, cast};
    return std::find(kClasses.begin(), kClasses.end(), work) != kClasses.end();
}

RateKey key_of(GroupAxis axis) {
    using enum GroupAxis;
    if (is_pair(axis) || axis == pipeline) return RateKey::pp;
    if (axis == ep) return RateKey::ep;
    return axis == tp || axis == kv || axis == cp || axis == etp ? RateKey::tp : RateKey::dp;
}

void add_computation(const WorkCell& cell, RateUses& uses) {
    const auto add_if = [&uses](bool applies, RateKey key) {
        if (applies) uses.add(key);
    };
    const bool is_expert = cell.work == WorkClass::expert_product;
    const bool is_product = is_expert || cell.work == WorkClass::product;
    const bool is_fused = cell.work == WorkClass::attention, is_unfused = cell.work == WorkClass::attention_product;
    uses.add(RateKey::computation);
    add_if(is_product, RateKey::products);
    add_if(is_product && size_of(cell.math) == 1, RateKey::fp8);
    add_if(is_expert, RateKey::expert_products);
    add_if(is_fused, RateKey::attention);
    add_if(is_fused, RateKey::attention_on_device);
    add_if(is_fused && cell.narrow_heads, RateKey::narrow_heads);
    add_if(is_fused && cell.pass == WorkPass::backward, RateKey::attention_backward);
    add_if(is_unfused, RateKey::attention_product);
    add_if(is_unfused && cell.odd_heads, RateKey::odd_heads);
    add_if(cell.at_end, RateKey::head);
    add_if(!cell.at_end && is_elementwise(cell.work), RateKey::elementwise);
    add_if(cell.pass == WorkPass::recomputation, RateKey::recomputation);
}

}  // namespace

bool is_piece(CommKind kind, GroupAxis axis) {
    return kind == CommKind::exchange && axis == GroupAxis::tp;
}

RateUses rates_of(const WorkCell& cell) {
    RateUses uses;
    switch (cell.work) {
        case WorkClass::copy:
        case WorkClass::host:
        case WorkClass::launch:
        case WorkClass::tp_layer:
            break;
        case WorkClass::host_layer:
            uses.add(RateKey::host_layer_ms);
            break;
        case WorkClass::host_step:
            uses.add(RateKey::host_step_ms);
            break;
        case WorkClass::tp_wait:
            uses.add(RateKey::tp_wait_us);
            if (cell.between_nodes) uses.add(RateKey::tp_wait_across_nodes);
            break;
        case WorkClass::hidden:
            uses.add(cell.axis == GroupAxis::tp ? RateKey::hidden_tp : RateKey::hidden_dp);
            break;
        case WorkClass::communication:
            uses.add(cell.between_nodes ? RateKey::fabric : RateKey::nvlink);
            uses.add(is_piece(cell.kind, cell.axis) ? RateKey::tp_pieces : key_of(cell.axis));
            break;
        default:
            add_computation(cell, uses);
    }
    return uses;
}

RateUses rates_of(const WorkCell& cell, const Parallelism& parallelism, std::int64_t devices_per_node) {
    if (cell.work != WorkClass::tp_layer) return rates_of(cell);
    RateUses uses;
    if (parallelism.pp > 1 && parallelism.world_size() > devices_per_node) {
        const double doublings = std::log2(static_cast<double>(parallelism.tp) / 2);  // from tp 2
        uses.add(RateKey::tp_layer_pipelined_ms);
        uses.add(RateKey::tp_layer_pipelined_growth, std::max(0.0, doublings));
    } else {
        uses.add(RateKey::tp_layer_ms);
    }
    return uses;
}

std::optional<WorkCell> hidden_cell(const WorkCell& communication) {
    const bool piece = is_piece(communication.kind, communication.axis);
    if (!piece && key_of(communication.axis) != RateKey::dp) return {};
    return WorkCell{.work = WorkClass::hidden, .axis = piece ? GroupAxis::tp : GroupAxis::dp};
}

double factor_of(const WorkCell& cell, const Rates& rates) {
    double factor = 1;
    for (const RateUse& use : rates_of(cell)) factor *= rates[use.key];
    return factor;
}

double wait_s(const WorkCell& communication, const Rates& rates) {
    const bool is_sum = communication.kind == CommKind::all_reduce || communication.kind == CommKind::reduce_scatter;
    if (!is_sum || communication.axis != GroupAxis::tp) return 0;
    constexpr double kMicro = 1e-6;
    return factor_of(wait_cell(communication), rates) * kMicro;
}

WorkCell wait_cell(const WorkCell& communication) {
    return {.work = WorkClass::tp_wait, .between_nodes = communication.between_nodes};
}

HostTime host_time(const Plan& plan) {
    constexpr double kPasses = 2;  // forward and backward take equal parts
    constexpr double kMilli = 1e-3;
    HostTime time{.layer_s = plan.rates[RateKey::host_layer_ms] * kMilli / kPasses};
    if (plan.parallelism.tp == 1) return time;
    const WorkCell cell{.work = WorkClass::tp_layer};
    double milliseconds = 1;
    for (const RateUse& use : rates_of(cell, plan.parallelism, plan.cluster.devices_per_node)) {
        milliseconds *= std::pow(plan.rates[use.key], use.power);
    }
    time.tp_layer_s = milliseconds * kMilli / kPasses;
    return time;
}

}  // namespace orrery::program
