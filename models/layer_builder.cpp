#include "models/layer_builder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/units.h"

namespace orrery::models {
namespace {

constexpr double kInitStd = 0.02;
/// Query rows of the score tiles of one attention call; the backward pass has two tiles. The executor checks that the
/// slot is large enough for the CPU kernel.
constexpr std::int64_t kAttentionQueryBlock = 128;

}  // namespace

LayerBuilder::LayerBuilder(const ModelSpec& model, LayerKind kind, const LayerContext& context)
    : model_(model), context_(context) {
    layer_.kind = kind;
    steps_ = &layer_.forward;
}

std::int64_t LayerBuilder::rows() const {
    return checked_product(positions(), context_.micro_batch);
}
std::int64_t LayerBuilder::token_rows() const {
    return sharded() ? rows() / context_.tp_degree : rows();
}

SlotIndex LayerBuilder::add(SlotDecl slot) {
    (void)slot.bytes();  // throws on overflow
    ORRERY_CHECK(layer_.slots.size() < 16384, "a layer has too many slots");
    return layer_.slots.add(std::move(slot));
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

const SlotDecl& LayerBuilder::slot(SlotIndex index) const {
    return layer_.slots[index];
}

SlotIndex LayerBuilder::saved(const std::string& name, std::vector<std::int64_t> shape, DType dtype,
                              std::int64_t most_rows) {
    return add(
        {.name = name, .role = SlotRole::saved, .dtype = dtype, .shape = std::move(shape), .most_rows = most_rows});
}
SlotIndex LayerBuilder::saved(const std::string& name, std::vector<std::int64_t> shape) {
    return saved(name, std::move(shape), context_.activation_dtype);
}
SlotIndex LayerBuilder::transient(const std::string& name, std::vector<std::int64_t> shape) {
    return transient(name, std::move(shape), context_.activation_dtype);
}
SlotIndex LayerBuilder::transient(const std::string& name, std::vector<std::int64_t> shape, DType dtype,
                                  std::int64_t most_rows) {
    return add(
        {.name = name, .role = SlotRole::transient, .dtype = dtype, .shape = std::move(shape), .most_rows = most_rows});
}
SlotIndex LayerBuilder::product_input(const std::string& name, std::vector<std::int64_t> shape, bool fp8,
                                      std::int64_t most_rows) {
    return fp8 ? transient(name, std::move(shape), context_.activation_dtype, most_rows)
               : saved(name, std::move(shape), context_.activation_dtype, most_rows);
}
SlotIndex LayerBuilder::attention_scratch(std::int64_t queries, std::int64_t keys) {
    return transient("attention.scratch", {2, std::min(kAttentionQueryBlock, queries), keys}, DType::fp32);
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

SlotIndex LayerBuilder::vocabulary_bias(const std::string& name) {
    return add({.name = name,
                .role = SlotRole::parameter,
                .dtype = context_.parameter_dtype,
                .shape = {local_vocab()},
                .parts = {{name, model_.vocab, 1, local_vocab(), 1}},
                .shard = ShardDim::rows,
                .init = InitKind::zeros});
}

SlotIndex LayerBuilder::table_weight(const std::string& name, std::int64_t entries) {
    return add({.name = name,
                .role = SlotRole::parameter,
                .dtype = context_.parameter_dtype,
                .shape = {entries, model_.hidden},
                .parts = {{name, entries, model_.hidden, entries, model_.hidden}},
                .init_std = kInitStd,
                .weight_decay = true,
                .gradient_sum = sharded() ? GradientSum::tp : GradientSum::none});
}

NormWeights LayerBuilder::norm_weights(const std::string& name, std::int64_t width) {
    auto vector_of = [&](const std::string& part, InitKind init) {
        return add({.name = name + part,
                    .role = SlotRole::parameter,
                    .dtype = context_.parameter_dtype,
                    .shape = {width},
                    .parts = {{name + part, width, 1, width, 1}},
                    .init = init,
                    .gradient_sum = sharded() ? GradientSum::tp : GradientSum::none});
    };
    NormWeights weights;
    weights.width = width;
    weights.weight = vector_of(".weight", InitKind::ones);
    if (model_.norm == NormKind::layer_norm) weights.bias = vector_of(".bias", InitKind::zeros);
    return weights;
}

SlotIndex LayerBuilder::head_norm_weight(const std::string& name) {
    // Shared by all heads; each tensor-parallel rank sees only its own heads, so gradients are partial sums.
    return add({.name = name,
                .role = SlotRole::parameter,
                .dtype = context_.parameter_dtype,
                .shape = {model_.head_dim},
                .parts = {{name, model_.head_dim, 1, model_.head_dim, 1}},
                .init = InitKind::ones,
                .gradient_sum = context_.tp_degree > 1 ? GradientSum::tp : GradientSum::none});
}

SlotIndex LayerBuilder::column_weight(const std::string& name, std::vector<ParameterPart> parts, GradientSum sum) {
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
                .weight_decay = true,
                .gradient_sum = sum});
}

SlotIndex LayerBuilder::column_bias(const std::string& name, std::vector<ParameterPart> parts, GradientSum sum) {
    std::int64_t local_rows = 0;
    for (const ParameterPart& part : parts) local_rows += part.local_rows;
    return add({.name = name,
                .role = SlotRole::parameter,
                .dtype = context_.parameter_dtype,
                .shape = {local_rows},
                .parts = std::move(parts),
                .shard = ShardDim::rows,
                .init = InitKind::zeros,
                .gradient_sum = sum});
}

SlotIndex LayerBuilder::row_weight(const std::string& name, std::int64_t out_width, std::int64_t in_width) {
    const std::int64_t local = in_width / context_.tp_degree;
    // GPT-2 scales the residual projections by 1/sqrt(2L) to keep the variance of the residual stream.
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
    return replicated_bias(name, model_.hidden, true);
}

SlotIndex LayerBuilder::replicated_weight(const std::string& name, std::int64_t n, std::int64_t k, bool by_tokens) {
    return add({.name = name,
                .role = SlotRole::parameter,
                .dtype = context_.parameter_dtype,
                .shape = {n, k},
                .parts = {{name, n, k, n, k}},
                .init_std = kInitStd,
                .weight_decay = true,
                .gradient_sum = by_tokens && sharded() ? GradientSum::tp : GradientSum::none});
}

SlotIndex LayerBuilder::replicated_bias(const std::string& name, std::int64_t n, bool by_tokens) {
    return add({.name = name,
                .role = SlotRole::parameter,
                .dtype = context_.parameter_dtype,
                .shape = {n},
                .parts = {{name, n, 1, n, 1}},
                .init = InitKind::zeros,
                .gradient_sum = by_tokens && sharded() ? GradientSum::tp : GradientSum::none});
}

SlotIndex LayerBuilder::expert_weight(const std::string& name, std::vector<ParameterPart> parts, std::int64_t experts,
                                      std::int64_t n, std::int64_t k, ShardDim shard) {
    return add({.name = name,
                .role = SlotRole::parameter,
                .dtype = context_.parameter_dtype,
                .shape = {experts, n, k},
                .parts = std::move(parts),
                .shard = shard,
                .init_std = kInitStd,
                .weight_decay = true,
                .expert = true});
}

SlotIndex LayerBuilder::gradient_of(SlotIndex parameter) {
    for (const SlotIndex index : layer_.slots.indices()) {
        const SlotDecl& slot = layer_.slots[index];
        if (slot.role == SlotRole::gradient && slot.parameter_slot == parameter) return index;
    }
    SlotDecl slot = layer_.slots[parameter];
    ORRERY_CHECK(slot.role == SlotRole::parameter, "gradient_of a slot that is not a parameter");
    slot.name += ".gradient";
    slot.role = SlotRole::gradient;
    slot.dtype = context_.gradient_dtype;
    slot.parameter_slot = parameter;
    return add(std::move(slot));
}

Boundary& LayerBuilder::boundary(Boundary::Kind kind, Boundary::Axis axis, SlotIndex in, SlotIndex out,
                                 std::int64_t elements) {
    steps_->emplace_back(Boundary{.kind = kind,
                                  .axis = axis,
                                  .in = in,
                                  .out = out,
                                  .elements = elements,
                                  .dtype = slot(in).dtype,
                                  .part = part_});
    return std::get<Boundary>(steps_->back());
}

SlotIndex LayerBuilder::enter_region(SlotIndex in, const std::string& gathered_name) {
    if (!sharded()) return in;
    const std::int64_t width = slot(in).shape.back();
    const SlotIndex whole = transient(gathered_name, {rows(), width}, slot(in).dtype);
    boundary(Boundary::Kind::gather, Boundary::Axis::tp, in, whole, rows() * width);
    return whole;
}

SlotIndex LayerBuilder::leave_target(const std::string& partial_name, SlotIndex result) {
    return sharded() ? transient(partial_name, {rows(), model_.hidden}) : result;
}
SlotIndex LayerBuilder::leave_shard(const std::string& shard_name, SlotIndex partial, std::int64_t width) {
    return sharded() ? transient(shard_name, {token_rows(), width}) : partial;
}

SlotIndex LayerBuilder::leave_region(SlotIndex partial, SlotIndex result) {
    if (context_.tp_degree == 1) return partial;
    boundary(sharded() ? Boundary::Kind::reduce_scatter : Boundary::Kind::reduce, Boundary::Axis::tp, partial, result,
             slot(partial).elements());
    return result;
}

void LayerBuilder::reduce_region(Boundary::Kind kind, SlotIndex in_out) {
    if (context_.tp_degree == 1) return;
    boundary(kind, Boundary::Axis::tp, in_out, in_out, slot(in_out).elements());
}

Layer LayerBuilder::finish() {
    return std::move(layer_);
}

}  // namespace orrery::models
