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
    if (is_pair(axis)) return RateKey::pp;
    switch (axis) {
        case GroupAxis::tp:
        case GroupAxis::kv:
        case GroupAxis::cp:
        case GroupAxis::etp:
            return RateKey::tp;
        case GroupAxis::ep:
            return RateKey::ep;
        case GroupAxis::pipeline:
            return RateKey::pp;
        default:
            return RateKey::dp;
    }
}

void add_computation(const WorkCell& cell, RateUses& uses) {
    uses.add(RateKey::computation);
    if (cell.work == WorkClass::product || cell.work == WorkClass::expert_product) {
        uses.add(RateKey::products);
        if (size_of(cell.math) == 1) uses.add(RateKey::fp8);
        if (cell.work == WorkClass::expert_product) uses.add(RateKey::expert_products);
    }
    if (cell.work == WorkClass::attention) {
        uses.add(RateKey::attention);
        uses.add(RateKey::attention_on_device);
        if (cell.narrow_heads) uses.add(RateKey::narrow_heads);
        if (cell.pass == WorkPass::backward) uses.add(RateKey::attention_backward);
    }
    if (cell.work == WorkClass::attention_product) {
        uses.add(RateKey::attention_product);
        if (cell.odd_heads) uses.add(RateKey::odd_heads);
    }
    if (cell.at_end) {
        uses.add(RateKey::head);
    } else if (is_elementwise(cell.work)) {
        uses.add(RateKey::elementwise);
    }
    if (cell.pass == WorkPass::recomputation) uses.add(RateKey::recomputation);
}

/// How often the number of tensor-parallel ranks doubles from `beyond` to `tp`; 0 if tp is not larger.
double doublings(std::int64_t tp, std::int64_t beyond) {
    if (tp <= beyond) return 0;
    return std::log2(static_cast<double>(tp) / static_cast<double>(beyond));
}

bool is_pipelined_over_nodes(const Parallelism& p, std::int64_t devices_per_node) {
    return p.pp > 1 && p.world_size() > devices_per_node;
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
    if (is_pipelined_over_nodes(parallelism, devices_per_node)) {
        uses.add(RateKey::tp_layer_pipelined_ms);
        uses.add(RateKey::tp_layer_pipelined_growth, doublings(parallelism.tp, 2));
    } else {
        uses.add(RateKey::tp_layer_ms);
    }
    return uses;
}

std::optional<RateKey> hidden_key(const WorkCell& communication) {
    if (is_piece(communication.kind, communication.axis)) return RateKey::hidden_tp;
    if (key_of(communication.axis) == RateKey::dp) return RateKey::hidden_dp;
    return std::nullopt;
}

WorkCell hidden_cell(const WorkCell& communication) {
    const bool piece = is_piece(communication.kind, communication.axis);
    return {.work = WorkClass::hidden, .axis = piece ? GroupAxis::tp : GroupAxis::dp};
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
