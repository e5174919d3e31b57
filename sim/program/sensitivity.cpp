#include "sim/program/sensitivity.h"

namespace orrery::program {
namespace {

using models::Operator;
using models::OpKind;

WorkClass class_of(OpKind kind) {
    switch (kind) {
        case OpKind::linear_forward:
        case OpKind::linear_backward_input:
        case OpKind::linear_backward_weight:
            return WorkClass::product;
        case OpKind::expert_linear_forward:
        case OpKind::expert_linear_backward_input:
        case OpKind::expert_linear_backward_weight:
            return WorkClass::expert_product;
        case OpKind::attention_forward:
        case OpKind::attention_backward:
            return WorkClass::attention;
        case OpKind::scores_forward:
        case OpKind::scores_backward:
        case OpKind::context_forward:
        case OpKind::context_backward:
            return WorkClass::attention_product;
        case OpKind::softmax_forward:
        case OpKind::softmax_backward:
        case OpKind::attention_merge:
        case OpKind::copy_columns:
        case OpKind::add_columns:
        case OpKind::repeat_heads:
        case OpKind::sum_repeated_heads:
        case OpKind::cut_heads:
        case OpKind::join_heads:
        case OpKind::join_sequence:
        case OpKind::cut_sequence:
            return WorkClass::attention_memory;
        case OpKind::layer_norm_forward:
        case OpKind::layer_norm_backward:
        case OpKind::rms_norm_forward:
        case OpKind::rms_norm_backward:
        case OpKind::head_norm_forward:
        case OpKind::head_norm_backward:
            return WorkClass::norm;
        case OpKind::embedding_forward:
        case OpKind::embedding_backward:
        case OpKind::position_forward:
        case OpKind::position_backward:
        case OpKind::load_tokens:
        case OpKind::load_targets:
            return WorkClass::embedding;
        case OpKind::cross_entropy_max:
        case OpKind::cross_entropy_sum:
        case OpKind::cross_entropy_loss:
        case OpKind::cross_entropy_backward:
        case OpKind::cross_entropy_correct:
            return WorkClass::loss;
        case OpKind::router_forward:
        case OpKind::router_backward:
        case OpKind::permute_forward:
        case OpKind::permute_backward:
        case OpKind::combine_forward:
        case OpKind::combine_backward:
        case OpKind::group_by_expert:
        case OpKind::group_by_source:
            return WorkClass::routing;
        case OpKind::adamw:
        case OpKind::sgd_momentum:
        case OpKind::gradient_norm:
        case OpKind::gradient_scale:
        case OpKind::clear:
            return WorkClass::optimizer;
        case OpKind::cast:
            return WorkClass::cast;
        case OpKind::copy_to_host:
        case OpKind::copy_from_host:
            return WorkClass::copy;
        case OpKind::host_wait:
            return WorkClass::host;
        case OpKind::rope_forward:
        case OpKind::rope_backward:
        case OpKind::dropout_forward:
        case OpKind::dropout_backward:
        case OpKind::relu_forward:
        case OpKind::relu_backward:
        case OpKind::silu_forward:
        case OpKind::silu_backward:
        case OpKind::bias_add:
        case OpKind::multiply:
        case OpKind::multiply_backward:
        case OpKind::accumulate:
        case OpKind::gate_rows_forward:
        case OpKind::gate_rows_backward:
        case OpKind::gelu_forward:
        case OpKind::gelu_backward:
        case OpKind::swiglu_forward:
        case OpKind::swiglu_backward:
        case OpKind::residual_add:
        case OpKind::residual_add_backward:
        case OpKind::bias_backward:
            return WorkClass::elementwise;
    }
    return WorkClass::elementwise;
}

/// Kernels of attention's products read heads in vectors of 16 bytes.
constexpr std::int64_t kHeadMultiple = 8;
/// Fused attention keeps tiles of twice as many rows of these in registers.
constexpr std::int64_t kNarrowHead = 64;

WorkPass pass_of(Phase phase, bool again) {
    if (again) return WorkPass::recomputation;
    switch (phase) {
        case Phase::forward:
            return WorkPass::forward;
        case Phase::backward:
        case Phase::backward_input:
        case Phase::backward_weight:
            return WorkPass::backward;
        case Phase::optimizer:
        case Phase::gradient_sync:
        case Phase::transfer:
        case Phase::gather:
        case Phase::reduce:
        case Phase::offload:
        case Phase::prepare:
        case Phase::exchange:
            return WorkPass::step;
    }
    return WorkPass::step;
}

bool is_product_class(WorkClass work) {
    return work == WorkClass::product || work == WorkClass::expert_product || work == WorkClass::attention ||
           work == WorkClass::attention_product;
}

}  // namespace

std::string_view name_of(WorkClass work) {
    switch (work) {
        case WorkClass::product:
            return "product";
        case WorkClass::expert_product:
            return "expert_product";
        case WorkClass::attention:
            return "attention";
        case WorkClass::attention_product:
            return "attention_product";
        case WorkClass::attention_memory:
            return "attention_memory";
        case WorkClass::norm:
            return "norm";
        case WorkClass::elementwise:
            return "elementwise";
        case WorkClass::embedding:
            return "embedding";
        case WorkClass::loss:
            return "loss";
        case WorkClass::routing:
            return "routing";
        case WorkClass::optimizer:
            return "optimizer";
        case WorkClass::cast:
            return "cast";
        case WorkClass::copy:
            return "copy";
        case WorkClass::host:
            return "host";
        case WorkClass::launch:
            return "launch";
        case WorkClass::host_layer:
            return "host_layer";
        case WorkClass::tp_layer:
            return "tp_layer";
        case WorkClass::host_step:
            return "host_step";
        case WorkClass::communication:
            return "communication";
        case WorkClass::tp_wait:
            return "tp_wait";
        case WorkClass::hidden:
            return "hidden";
    }
    return "?";
}

std::string_view name_of(WorkPass pass) {
    switch (pass) {
        case WorkPass::forward:
            return "forward";
        case WorkPass::backward:
            return "backward";
        case WorkPass::recomputation:
            return "recomputation";
        case WorkPass::step:
            return "step";
    }
    return "?";
}

std::string name_of(const WorkCell& cell) {
    const bool is_host = cell.work >= WorkClass::launch && cell.work <= WorkClass::host_step;
    if (is_host) return std::string(name_of(cell.work));
    if (cell.work == WorkClass::hidden) return std::string(name_of(cell.work)) + " " + std::string(name_of(cell.axis));
    const char* const where = cell.between_nodes ? " between nodes" : " inside a node";
    if (cell.work == WorkClass::tp_wait) return std::string(name_of(cell.work)) + where;
    if (cell.work == WorkClass::communication) {
        return std::string(name_of(cell.kind)) + " " + std::string(name_of(cell.axis)) + where;
    }
    std::string name = std::string(name_of(cell.work)) + " " + std::string(name_of(cell.pass));
    if (cell.at_end) name += " at an end";
    if (cell.odd_heads) name += " odd heads";
    if (cell.narrow_heads) name += " narrow heads";
    if (is_product_class(cell.work)) name += " " + std::string(orrery::name_of(cell.math));
    return name;
}

WorkCell cell_of(const Operator& op, Phase phase) {
    WorkCell cell;
    cell.work = class_of(op.kind);
    const bool in_core = op.part == models::BlockPart::attention_core;
    if (in_core && cell.work == WorkClass::elementwise) cell.work = WorkClass::attention_memory;
    cell.pass = pass_of(phase, op.again);
    cell.at_end = op.at_end;
    if (is_product_class(cell.work)) cell.math = op.math;
    cell.odd_heads = cell.work == WorkClass::attention_product && op.head_dim % kHeadMultiple != 0;
    cell.narrow_heads = cell.work == WorkClass::attention && op.head_dim <= kNarrowHead;
    return cell;
}

WorkCell cell_of(CommKind kind, GroupAxis axis, bool between_nodes) {
    WorkCell cell;
    cell.work = WorkClass::communication;
    cell.pass = WorkPass::step;
    cell.kind = kind;
    cell.axis = axis;
    cell.between_nodes = between_nodes;
    return cell;
}

double Sensitivity::total() const {
    double sum = 0;
    for (const Entry& entry : entries) sum += entry.seconds;
    return sum;
}

}  // namespace orrery::program
