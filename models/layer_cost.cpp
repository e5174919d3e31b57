// FLOPs and memory traffic of the operators of a layer.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "models/layer_builder.h"

namespace orrery::models {
namespace {

// Arithmetic per element of the vector operators, counted from their formulas (an exponential counts as 10).
constexpr double kNormFlops = 8;
constexpr double kNormBackwardFlops = 14;
constexpr double kGeluFlops = 20;
constexpr double kGeluBackwardFlops = 30;
constexpr double kSwigluFlops = 15;
constexpr double kSwigluBackwardFlops = 24;
constexpr double kSiluFlops = 14;
constexpr double kSiluBackwardFlops = 18;
constexpr double kRopeFlops = 3;
constexpr double kAddFlops = 2;
constexpr double kExpFlops = 12;
constexpr double kSoftmaxFlops = 13;
constexpr double kSoftmaxBackwardFlops = 4;
constexpr double kMergeFlops = 4;
constexpr double kCastFlops = 2;

/// Pairs of a token with itself or with one less than `reach` before it in the same document, of `s` tokens. A document
/// ends after any token with probability 1/`mean`, so a distance d lies within one with (1-1/mean)^d: the sum over d of
/// (s-d) of those. A mean of 0: all is one document.
double pairs_within(double s, double reach, double mean) {
    if (mean == 0) return reach * (reach + 1) / 2 + (s - reach) * reach;
    const double ended = -std::expm1(reach * std::log1p(-1 / mean));  // by then
    return mean * (s * ended + reach * (1 - ended)) - mean * (mean - 1) * ended;
}

}  // namespace

double LayerBuilder::attended_pairs(std::int64_t keys) const {
    const auto s = static_cast<double>(keys);
    if (!kernels().causal_skip) return s * s;
    const bool has_window = model_.sliding_window > 0 && model_.sliding_window < keys;
    const double reach = has_window ? static_cast<double>(model_.sliding_window) : s;
    const double to_earlier = pairs_within(s, reach, static_cast<double>(kernels().document_tokens));
    if (model_.causal) return to_earlier;
    // Both ways, each token to itself once; a window lies half on each side of it.
    return has_window ? std::min(s * reach, 2 * to_earlier - s) : 2 * to_earlier - s;
}

std::int64_t LayerBuilder::attended_length(std::int64_t keys) const {
    const auto s = static_cast<double>(keys);
    const double whole = kernels().causal_skip && model_.causal ? pairs_within(s, s, 0) : s * s;
    return std::max<std::int64_t>(1, std::llround(s * attended_pairs(keys) / whole));
}

double LayerBuilder::slot_bytes(SlotIndex index) const {
    if (index == kNoSlot) return 0;
    const SlotDecl& decl = slot(index);
    return static_cast<double>(decl.elements()) * static_cast<double>(size_of(decl.dtype));
}

void LayerBuilder::count_bytes(Operator& op) const {
    const auto width = [this](SlotIndex index) {
        return index == kNoSlot ? 0.0 : static_cast<double>(size_of(slot(index).dtype));
    };
    const auto rows = static_cast<double>(op.rows);
    if (op.is_matmul() || op.is_expert_matmul()) {  // by its own dimensions: it may write a part of a slot
        const auto n = static_cast<double>(op.n), k = static_cast<double>(op.k);
        const double weights = n * k * static_cast<double>(std::max<std::int64_t>(op.groups, 1));
        switch (op.kind) {
            case OpKind::linear_forward:
            case OpKind::expert_linear_forward:
                op.bytes_read = rows * k * width(op.in[0]) + weights * width(op.in[1]) + slot_bytes(op.in[2]);
                op.bytes_written = rows * n * width(op.out[0]);
                return;
            case OpKind::linear_backward_input:
            case OpKind::expert_linear_backward_input:
                op.bytes_read = rows * n * width(op.in[0]) + weights * width(op.in[1]);
                op.bytes_written = rows * k * width(op.out[0]);
                return;
            default: {
                // Gradients accumulate: they are read before they are written.
                const bool accumulates = slot(op.out[0]).role == SlotRole::gradient;
                const double written = weights * width(op.out[0]);
                op.bytes_read = rows * n * width(op.in[0]) + rows * k * width(op.in[1]) + (accumulates ? written : 0) +
                                slot_bytes(op.out[1]);
                op.bytes_written = written + slot_bytes(op.out[1]);
                return;
            }
        }
    }
    for (SlotIndex index : op.in) op.bytes_read += slot_bytes(index);
    for (SlotIndex index : op.out) {
        op.bytes_written += slot_bytes(index);
        if (index != kNoSlot && slot(index).role == SlotRole::gradient) op.bytes_read += slot_bytes(index);
    }
    // Of an embedding table only the rows that were looked up move.
    const double row_bytes = static_cast<double>(op.k * size_of(context_.activation_dtype));
    const double gradient_row_bytes = static_cast<double>(op.k * size_of(context_.gradient_dtype));
    if (op.kind == OpKind::copy_columns || op.kind == OpKind::add_columns) {
        const double moved = rows * static_cast<double>(op.n);
        op.bytes_written = moved * width(op.out[0]);
        op.bytes_read = moved * width(op.in[0]) + (op.kind == OpKind::add_columns ? op.bytes_written : 0);
    } else if (op.kind == OpKind::accumulate) {
        op.bytes_written = static_cast<double>(op.elements) * width(op.out[0]);
        op.bytes_read = static_cast<double>(op.elements) * width(op.in[0]) + op.bytes_written;
    } else if (op.kind == OpKind::embedding_forward) {
        op.bytes_read = rows * 4 + rows * row_bytes;
    } else if (op.kind == OpKind::cross_entropy_correct) {  // of the weight the targets' rows
        op.bytes_read += rows * row_bytes - slot_bytes(op.in[4]);
    } else if (op.kind == OpKind::embedding_backward) {
        op.bytes_read = rows * 4 + rows * (row_bytes + gradient_row_bytes);
        op.bytes_written = rows * gradient_row_bytes;
    } else if (op.kind == OpKind::position_forward) {
        op.bytes_read = 2 * rows * row_bytes;
        op.bytes_written = rows * row_bytes;
    } else if (op.kind == OpKind::position_backward) {
        op.bytes_read = rows * (row_bytes + gradient_row_bytes);
        op.bytes_written = rows * gradient_row_bytes;
    }
}

double LayerBuilder::flops_of(const Operator& op, double pairs) const {
    const auto rows = static_cast<double>(op.rows);
    const auto n = static_cast<double>(op.n);
    const auto k = static_cast<double>(op.k);
    const auto elements = static_cast<double>(op.elements);
    // Width of q and k, as far as it is rotated for the rotation.
    const auto rotated = static_cast<double>((op.heads + op.kv_heads) * op.head_dim);
    // One product over the pairs of all heads and sequences; scores and context differ in width in latent attention.
    const double all_pairs = pairs * static_cast<double>(op.micro_batch * op.heads);
    const double score_product = 2 * all_pairs * static_cast<double>(op.head_dim);
    const double context_product = 2 * all_pairs * static_cast<double>(op.value_dim > 0 ? op.value_dim : op.head_dim);
    switch (op.kind) {
        case OpKind::load_tokens:
        case OpKind::load_targets:
        case OpKind::embedding_forward:
        case OpKind::permute_forward:
        case OpKind::group_by_expert:
        case OpKind::group_by_source:
        case OpKind::copy_to_host:
        case OpKind::copy_from_host:
        case OpKind::host_wait:
        case OpKind::adamw:  // the lowering counts what works on flat state
        case OpKind::sgd_momentum:
        case OpKind::gradient_norm:
        case OpKind::gradient_scale:
        case OpKind::clear:
        case OpKind::copy_columns:
        case OpKind::repeat_heads:
        case OpKind::cut_heads:
        case OpKind::join_heads:
        case OpKind::join_sequence:
        case OpKind::cut_sequence:
            return 0;
        case OpKind::embedding_backward:
        case OpKind::position_forward:
        case OpKind::position_backward:
        case OpKind::residual_add_backward:
            return rows * k;
        case OpKind::layer_norm_forward:
        case OpKind::rms_norm_forward:
            return kNormFlops * rows * k;
        case OpKind::layer_norm_backward:
        case OpKind::rms_norm_backward:
            return kNormBackwardFlops * rows * k;
        case OpKind::linear_forward:
        case OpKind::linear_backward_input:
        case OpKind::linear_backward_weight:
        case OpKind::expert_linear_forward:  // rows are those of all groups together
        case OpKind::expert_linear_backward_input:
        case OpKind::expert_linear_backward_weight:
            return 2 * rows * n * k;
        case OpKind::head_norm_forward:
            return kNormFlops * rows * rotated;
        case OpKind::head_norm_backward:
            return kNormBackwardFlops * rows * rotated;
        case OpKind::rope_forward:
        case OpKind::rope_backward:
            return kRopeFlops * rows * (n > 0 ? n : rotated * model_.rotary_fraction);
        case OpKind::attention_forward:
            return score_product + context_product;
        case OpKind::attention_backward:  // the scores are computed a second time
            return 3 * score_product + 2 * context_product;
        case OpKind::scores_forward:
            return score_product;
        case OpKind::scores_backward:
            return 2 * score_product;
        case OpKind::context_forward:
            return context_product;
        case OpKind::context_backward:
            return 2 * context_product;
        case OpKind::softmax_forward:
            return kSoftmaxFlops * elements;
        case OpKind::softmax_backward:
            return kSoftmaxBackwardFlops * elements;
        case OpKind::dropout_forward:
        case OpKind::dropout_backward:
        case OpKind::bias_add:
        case OpKind::multiply:
        case OpKind::accumulate:
        case OpKind::relu_forward:
        case OpKind::relu_backward:
            return elements > 0 ? elements : rows * n;
        case OpKind::gate_rows_forward:
            return rows * k;
        case OpKind::gate_rows_backward:
            return 2 * rows * k;
        case OpKind::multiply_backward:
            return 2 * (elements > 0 ? elements : rows * n);
        case OpKind::cast:
            return kCastFlops * (elements > 0 ? elements : rows * n);
        case OpKind::sum_repeated_heads:
            return rows * static_cast<double>(op.kv_heads * op.copies * (op.head_dim + op.value_dim));
        case OpKind::add_columns:
            return rows * n;
        case OpKind::attention_merge:
            return kMergeFlops * rows * n;
        case OpKind::router_forward:
        case OpKind::router_backward:
            return kSoftmaxFlops * rows * n;
        case OpKind::permute_backward:
            return rows * k;
        case OpKind::combine_forward:
            return 2 * rows * k;
        case OpKind::combine_backward:
            return 4 * rows * k;
        case OpKind::gelu_forward:
            return kGeluFlops * rows * n;
        case OpKind::gelu_backward:
            return kGeluBackwardFlops * rows * n;
        case OpKind::swiglu_forward:
            return kSwigluFlops * rows * n;
        case OpKind::swiglu_backward:
            return kSwigluBackwardFlops * rows * n;
        case OpKind::silu_forward:
            return kSiluFlops * rows * n;
        case OpKind::silu_backward:
            return kSiluBackwardFlops * rows * n;
        case OpKind::residual_add:
            return kAddFlops * rows * k;
        case OpKind::bias_backward:
        case OpKind::cross_entropy_max:
            return rows * n;
        case OpKind::cross_entropy_sum:
        case OpKind::cross_entropy_backward:
            return kExpFlops * rows * n;
        case OpKind::cross_entropy_loss:
            return kExpFlops * rows * static_cast<double>(std::max<std::int64_t>(1, op.sources));
        case OpKind::cross_entropy_correct:
            return 2 * rows * k;
    }
    throw_bug(__FILE__, __LINE__, "OpKind", "unknown operator kind");
}

Operator& LayerBuilder::op(Operator op, double pairs) {
    if (op.sequence == 0) op.sequence = context_.sequence;
    if (op.queries == 0) op.queries = op.sequence;
    op.micro_batch = context_.micro_batch;
    if (op.part == BlockPart::none) op.part = part_;
    if (op.math != DType::fp8 && op.math != DType::fp4) op.math = context_.compute_dtype;
    count_bytes(op);
    op.flops = flops_of(op, pairs);
    steps_->emplace_back(op);
    return std::get<Operator>(steps_->back());
}

}  // namespace orrery::models
