#include "models/layer_builder.h"

#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/units.h"

namespace orrery::models {
namespace {

constexpr double kInitStd = 0.02;
/// Score tiles of one attention call cover this many query rows; two tiles in the backward pass. The CPU kernel's
/// own requirement is checked against the slot by the executor.
constexpr std::int64_t kAttentionQueryBlock = 128;

// Arithmetic per element of the vector operators, counted from their formulas (an exponential counts as 10).
constexpr double kNormFlops = 8;
constexpr double kNormBackwardFlops = 14;
constexpr double kGeluFlops = 20;
constexpr double kGeluBackwardFlops = 30;
constexpr double kSwigluFlops = 15;
constexpr double kSwigluBackwardFlops = 24;
constexpr double kRopeFlops = 3;
constexpr double kAddFlops = 2;
constexpr double kExpFlops = 12;

/// Pairs (query, key) that one head of one sequence attends over.
double attended_pairs(std::int64_t sequence, std::int64_t window, bool causal_skip) {
    const auto s = static_cast<double>(sequence);
    if (!causal_skip) return s * s;
    if (window > 0 && window < sequence) {
        const auto w = static_cast<double>(window);
        return w * (w + 1) / 2 + (s - w) * w;
    }
    return s * (s + 1) / 2;
}

}  // namespace

LayerBuilder::LayerBuilder(const ModelSpec& model, LayerKind kind, const LayerContext& context)
    : model_(model), context_(context) {
    layer_.kind = kind;
    steps_ = &layer_.forward;
}

std::int64_t LayerBuilder::rows() const {
    return checked_product(context_.sequence, context_.micro_batch);
}
std::int64_t LayerBuilder::token_rows() const {
    return sharded() ? rows() / context_.tp_degree : rows();
}

SlotIndex LayerBuilder::add(SlotDecl slot) {
    (void)slot.bytes();  // overflow is found here, where the name of the model is still known
    ORRERY_CHECK(layer_.slots.size() < 4096, "a layer has too many slots");
    layer_.slots.push_back(std::move(slot));
    return static_cast<SlotIndex>(layer_.slots.size() - 1);
}

SlotIndex LayerBuilder::hidden_in() {
    if (hidden_in_ == kNoSlot) {
        hidden_in_ = add({.name = "hidden.in",
                          .role = SlotRole::hidden_in,
                          .dtype = context_.activation_dtype,
                          .shape = {token_rows(), model_.hidden}});
    }
    return hidden_in_;
}

SlotIndex LayerBuilder::hidden_out() {
    if (hidden_out_ == kNoSlot) {
        hidden_out_ = add({.name = "hidden.out",
                           .role = SlotRole::hidden_out,
                           .dtype = context_.activation_dtype,
                           .shape = {token_rows(), model_.hidden}});
    }
    return hidden_out_;
}

SlotIndex LayerBuilder::hidden_gradient() {
    if (hidden_gradient_ == kNoSlot) {
        hidden_gradient_ = add({.name = "hidden.gradient",
                                .role = SlotRole::hidden_gradient,
                                .dtype = context_.activation_dtype,
                                .shape = {token_rows(), model_.hidden}});
    }
    return hidden_gradient_;
}

SlotIndex LayerBuilder::loss() {
    if (loss_ == kNoSlot) loss_ = add({.name = "loss", .role = SlotRole::loss, .dtype = DType::fp64, .shape = {1}});
    return loss_;
}

SlotIndex LayerBuilder::saved(const std::string& name, std::vector<std::int64_t> shape, DType dtype) {
    return add({.name = name, .role = SlotRole::saved, .dtype = dtype, .shape = std::move(shape)});
}
SlotIndex LayerBuilder::transient(const std::string& name, std::vector<std::int64_t> shape) {
    return transient(name, std::move(shape), context_.activation_dtype);
}
SlotIndex LayerBuilder::transient(const std::string& name, std::vector<std::int64_t> shape, DType dtype) {
    return add({.name = name, .role = SlotRole::transient, .dtype = dtype, .shape = std::move(shape)});
}
SlotIndex LayerBuilder::attention_scratch() {
    return transient("attention.scratch", {2, std::min(kAttentionQueryBlock, context_.sequence), context_.sequence},
                     DType::fp32);
}
SlotIndex LayerBuilder::dropout_mask(const std::string& name) {
    return saved(name + ".mask", {token_rows(), model_.hidden}, DType::uint8);
}

SlotIndex LayerBuilder::vocabulary_weight(const std::string& name, bool tied) {
    return add({.name = name,
                .role = SlotRole::parameter,
                .dtype = context_.parameter_dtype,
                .shape = {local_vocab(), model_.hidden},
                .parts = {{name, model_.vocab, model_.hidden, local_vocab(), model_.hidden}},
                .shard = ShardDim::rows,
                .init = InitKind::scaled,
                .init_std = kInitStd,
                .weight_decay = true,
                .tied = tied});
}

SlotIndex LayerBuilder::position_weight() {
    return add(
        {.name = "position.weight",
         .role = SlotRole::parameter,
         .dtype = context_.parameter_dtype,
         .shape = {model_.max_positions, model_.hidden},
         .parts = {{"position.weight", model_.max_positions, model_.hidden, model_.max_positions, model_.hidden}},
         .init_std = kInitStd,
         .weight_decay = true,
         .gradient_partial_over_tp = sharded()});
}

NormWeights LayerBuilder::norm_weights(const std::string& name) {
    auto vector_of = [&](const std::string& part, InitKind init) {
        return add({.name = name + part,
                    .role = SlotRole::parameter,
                    .dtype = context_.parameter_dtype,
                    .shape = {model_.hidden},
                    .parts = {{name + part, model_.hidden, 1, model_.hidden, 1}},
                    .init = init,
                    .gradient_partial_over_tp = sharded()});
    };
    NormWeights weights;
    weights.weight = vector_of(".weight", InitKind::ones);
    if (model_.norm == NormKind::layer_norm) weights.bias = vector_of(".bias", InitKind::zeros);
    return weights;
}

SlotIndex LayerBuilder::head_norm_weight(const std::string& name) {
    // Shared by all heads, of which each tensor-parallel rank sees its own.
    return add({.name = name,
                .role = SlotRole::parameter,
                .dtype = context_.parameter_dtype,
                .shape = {model_.head_dim},
                .parts = {{name, model_.head_dim, 1, model_.head_dim, 1}},
                .init = InitKind::ones,
                .gradient_partial_over_tp = context_.tp_degree > 1});
}

SlotIndex LayerBuilder::column_weight(const std::string& name, std::vector<ParameterPart> parts) {
    std::int64_t local_rows = 0;
    for (ParameterPart& part : parts) {
        part.local_cols = part.global_cols;
        local_rows += part.local_rows;
    }
    const std::int64_t width = parts.front().global_cols;
    return add({.name = name,
                .role = SlotRole::parameter,
                .dtype = context_.parameter_dtype,
                .shape = {local_rows, width},
                .parts = std::move(parts),
                .shard = ShardDim::rows,
                .init_std = kInitStd,
                .weight_decay = true});
}

SlotIndex LayerBuilder::column_bias(const std::string& name, std::vector<ParameterPart> parts) {
    std::int64_t local_rows = 0;
    for (const ParameterPart& part : parts) local_rows += part.local_rows;
    return add({.name = name,
                .role = SlotRole::parameter,
                .dtype = context_.parameter_dtype,
                .shape = {local_rows},
                .parts = std::move(parts),
                .shard = ShardDim::rows,
                .init = InitKind::zeros});
}

SlotIndex LayerBuilder::row_weight(const std::string& name, std::int64_t out_width, std::int64_t in_width) {
    const std::int64_t local = in_width / context_.tp_degree;
    // GPT-2 scales the residual projections by 1/sqrt(2L) so that the residual stream keeps its variance.
    const double std =
        model_.norm == NormKind::layer_norm ? kInitStd / std::sqrt(2.0 * static_cast<double>(model_.layers)) : kInitStd;
    return add({.name = name,
                .role = SlotRole::parameter,
                .dtype = context_.parameter_dtype,
                .shape = {out_width, local},
                .parts = {{name, out_width, in_width, out_width, local}},
                .shard = ShardDim::cols,
                .init_std = std,
                .weight_decay = true});
}

SlotIndex LayerBuilder::row_bias(const std::string& name) {
    return add({.name = name,
                .role = SlotRole::parameter,
                .dtype = context_.parameter_dtype,
                .shape = {model_.hidden},
                .parts = {{name, model_.hidden, 1, model_.hidden, 1}},
                .init = InitKind::zeros,
                .gradient_partial_over_tp = sharded()});
}

SlotIndex LayerBuilder::gradient_of(SlotIndex parameter) {
    for (std::size_t i = 0; i < layer_.slots.size(); ++i) {
        const SlotDecl& slot = layer_.slots[i];
        if (slot.role == SlotRole::gradient && slot.parameter_slot == parameter) return static_cast<SlotIndex>(i);
    }
    SlotDecl slot = layer_.slots[static_cast<std::size_t>(parameter)];
    ORRERY_CHECK(slot.role == SlotRole::parameter, "gradient_of a slot that is not a parameter");
    slot.name += ".gradient";
    slot.role = SlotRole::gradient;
    slot.dtype = context_.gradient_dtype;
    slot.parameter_slot = parameter;
    return add(std::move(slot));
}

double LayerBuilder::slot_bytes(SlotIndex slot) const {
    return slot == kNoSlot ? 0.0 : static_cast<double>(layer_.slots[static_cast<std::size_t>(slot)].bytes());
}

Operator LayerBuilder::attention_shape(Operator op) const {
    op.rows = rows();
    op.heads = model_.heads / context_.tp_degree;
    op.kv_heads = model_.kv_heads / context_.tp_degree;
    op.head_dim = model_.head_dim;
    return op;
}

void LayerBuilder::count_bytes(Operator& op) const {
    for (SlotIndex slot : op.in) op.bytes_read += slot_bytes(slot);
    for (SlotIndex slot : op.out) {
        op.bytes_written += slot_bytes(slot);
        // Gradients accumulate: they are read before they are written.
        if (slot != kNoSlot && layer_.slots[static_cast<std::size_t>(slot)].role == SlotRole::gradient) {
            op.bytes_read += slot_bytes(slot);
        }
    }
    // Of an embedding table only the rows that were looked up move.
    const auto rows = static_cast<double>(op.rows);
    const double row_bytes = static_cast<double>(op.k * size_of(context_.activation_dtype));
    const double gradient_row_bytes = static_cast<double>(op.k * size_of(context_.gradient_dtype));
    if (op.kind == OpKind::embedding_forward) {
        op.bytes_read = rows * 4 + rows * row_bytes;
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

double LayerBuilder::flops_of(const Operator& op) const {
    const auto rows = static_cast<double>(op.rows);
    const auto n = static_cast<double>(op.n);
    const auto k = static_cast<double>(op.k);
    const auto rotated = static_cast<double>((op.heads + op.kv_heads) * op.head_dim);  // width of q and k
    const double pairs = attended_pairs(op.sequence, model_.sliding_window, context_.implementation.causal_skip) *
                         static_cast<double>(op.micro_batch * op.heads * op.head_dim);
    switch (op.kind) {
        case OpKind::load_tokens:
        case OpKind::load_targets:
        case OpKind::embedding_forward:
        case OpKind::adamw:
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
            return 2 * rows * n * k;
        case OpKind::head_norm_forward:
            return kNormFlops * rows * rotated;
        case OpKind::head_norm_backward:
            return kNormBackwardFlops * rows * rotated;
        case OpKind::rope_forward:
        case OpKind::rope_backward:
            return kRopeFlops * rows * rotated;
        case OpKind::attention_forward:
            return 4 * pairs;
        case OpKind::attention_backward:  // the fused form computes the scores a second time
            return (context_.implementation.fused_attention ? 10 : 8) * pairs;
        case OpKind::gelu_forward:
            return kGeluFlops * rows * n;
        case OpKind::gelu_backward:
            return kGeluBackwardFlops * rows * n;
        case OpKind::swiglu_forward:
            return kSwigluFlops * rows * n;
        case OpKind::swiglu_backward:
            return kSwigluBackwardFlops * rows * n;
        case OpKind::residual_add:
            return kAddFlops * rows * k;
        case OpKind::bias_backward:
        case OpKind::cross_entropy_max:
            return rows * n;
        case OpKind::cross_entropy_sum:
        case OpKind::cross_entropy_backward:
            return kExpFlops * rows * n;
        case OpKind::cross_entropy_loss:
            return kExpFlops * rows;
    }
    throw_bug(__FILE__, __LINE__, "OpKind", "unknown operator kind");
}

void LayerBuilder::op(Operator op) {
    op.sequence = context_.sequence;
    op.micro_batch = context_.micro_batch;
    count_bytes(op);
    op.flops = flops_of(op);
    steps_->emplace_back(op);
}

void LayerBuilder::boundary(Boundary::Kind kind, SlotIndex in, SlotIndex out, std::int64_t elements) {
    steps_->emplace_back(Boundary{kind, in, out, elements, layer_.slots[static_cast<std::size_t>(in)].dtype});
}

SlotIndex LayerBuilder::enter_region(SlotIndex in, const std::string& gathered_name) {
    if (!sharded()) return in;
    const std::int64_t width = layer_.slots[static_cast<std::size_t>(in)].shape.back();
    const SlotIndex whole = transient(gathered_name, {rows(), width}, layer_.slots[static_cast<std::size_t>(in)].dtype);
    boundary(Boundary::Kind::gather_sequence, in, whole, rows() * width);
    return whole;
}

SlotIndex LayerBuilder::leave_target(const std::string& partial_name, SlotIndex result) {
    return sharded() ? transient(partial_name, {rows(), model_.hidden}) : result;
}
SlotIndex LayerBuilder::leave_shard(const std::string& shard_name, SlotIndex partial) {
    return sharded() ? transient(shard_name, {token_rows(), model_.hidden}) : partial;
}

SlotIndex LayerBuilder::leave_region(SlotIndex partial, SlotIndex result) {
    if (context_.tp_degree == 1) return partial;
    const std::int64_t elements = rows() * model_.hidden;
    boundary(sharded() ? Boundary::Kind::reduce_scatter : Boundary::Kind::reduce, partial, result, elements);
    return result;
}

void LayerBuilder::reduce_region(Boundary::Kind kind, SlotIndex in_out) {
    if (context_.tp_degree == 1) return;
    boundary(kind, in_out, in_out, layer_.slots[static_cast<std::size_t>(in_out)].elements());
}

std::tuple<SlotIndex, SlotIndex> LayerBuilder::norm_forward(SlotIndex x, NormWeights weights, const std::string& name) {
    const bool layer_norm = model_.norm == NormKind::layer_norm;
    const SlotIndex y = saved(name + ".out", {token_rows(), model_.hidden}, context_.activation_dtype);
    const SlotIndex stats = saved(name + ".stats", {token_rows(), layer_norm ? 2 : 1}, DType::fp32);
    op({.kind = layer_norm ? OpKind::layer_norm_forward : OpKind::rms_norm_forward,
        .sequence_sharded = sharded(),
        .rows = token_rows(),
        .k = model_.hidden,
        .in = {x, weights.weight, weights.bias},
        .out = {y, stats}});
    return {y, stats};
}

void LayerBuilder::norm_backward(SlotIndex gradient, SlotIndex x, NormWeights weights, SlotIndex stats,
                                 SlotIndex residual, SlotIndex result) {
    const bool layer_norm = model_.norm == NormKind::layer_norm;
    op({.kind = layer_norm ? OpKind::layer_norm_backward : OpKind::rms_norm_backward,
        .sequence_sharded = sharded(),
        .rows = token_rows(),
        .k = model_.hidden,
        .in = {gradient, x, weights.weight, stats, residual},
        .out = {result, gradient_of(weights.weight), layer_norm ? gradient_of(weights.bias) : kNoSlot}});
}

void LayerBuilder::linear_forward(const std::string& name, SlotIndex x, SlotIndex weight, SlotIndex bias, SlotIndex y,
                                  std::int64_t n, std::int64_t k) {
    ORRERY_CHECK(x != kNoSlot && weight != kNoSlot && y != kNoSlot, name + ": a product without operands");
    op({.kind = OpKind::linear_forward, .rows = rows(), .n = n, .k = k, .in = {x, weight, bias}, .out = {y}});
}

void LayerBuilder::linear_backward_input(SlotIndex dy, SlotIndex weight, SlotIndex dx, std::int64_t n, std::int64_t k) {
    op({.kind = OpKind::linear_backward_input, .rows = rows(), .n = n, .k = k, .in = {dy, weight}, .out = {dx}});
}

void LayerBuilder::linear_backward_weight(SlotIndex dy, SlotIndex x, SlotIndex weight, SlotIndex bias, std::int64_t n,
                                          std::int64_t k) {
    op({.kind = OpKind::linear_backward_weight,
        .weight_gradient = true,
        .rows = rows(),
        .n = n,
        .k = k,
        .in = {dy, x},
        .out = {gradient_of(weight), bias == kNoSlot ? kNoSlot : gradient_of(bias)}});
}

void LayerBuilder::column_backward(const std::string& input_name, SlotIndex dy, SlotIndex normed, SlotIndex weight,
                                   SlotIndex bias, std::int64_t n) {
    const SlotIndex normed_full = enter_region(normed, input_name + ".out.regathered");
    const SlotIndex gradient = transient(input_name + ".out.gradient", {rows(), model_.hidden});
    linear_backward_input(dy, weight, gradient, n, model_.hidden);
    column_result_ = leave_region(gradient, leave_shard(input_name + ".out.gradient.shard", gradient));
    linear_backward_weight(dy, normed_full, weight, bias, n, model_.hidden);
}

SlotIndex LayerBuilder::residual_forward(SlotIndex a, SlotIndex b, SlotIndex bias, SlotIndex y,
                                         const std::string& name) {
    const SlotIndex mask = context_.dropout > 0 ? dropout_mask(name) : kNoSlot;
    op({.kind = OpKind::residual_add,
        .sequence_sharded = sharded(),
        .rows = token_rows(),
        .k = model_.hidden,
        .in = {a, b, bias},
        .out = {y, mask}});
    return mask;
}

Layer LayerBuilder::finish() {
    return std::move(layer_);
}

}  // namespace orrery::models
