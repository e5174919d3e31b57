#include "models/layer.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/units.h"
#include "models/layer_builder.h"

namespace orrery::models {

std::string_view name_of(LayerKind kind) {
    switch (kind) {
        case LayerKind::embedding:
            return "embedding";
        case LayerKind::block:
            return "block";
        case LayerKind::head:
            return "head";
    }
    throw_bug(__FILE__, __LINE__, "LayerKind", "unknown layer kind");
}

std::int64_t SlotDecl::elements() const {
    std::int64_t product = 1;
    for (std::int64_t extent : shape) product = checked_product(product, extent);
    return product;
}

std::int64_t SlotDecl::bytes() const {
    return checked_product(elements(), size_of(dtype));
}

std::int64_t padded_vocabulary(const ModelSpec& model, std::int64_t multiple, std::int64_t tp_degree) {
    const std::int64_t unit = checked_product(multiple, tp_degree);
    return checked_product((model.vocab + unit - 1) / unit, unit);
}

namespace {

void check_divides(const ModelSpec& model, const char* key, std::int64_t value, std::int64_t tp_degree) {
    if (value % tp_degree != 0) {
        throw InputError(model.name, key, std::to_string(value),
                         "a multiple of the tensor-parallel degree " + std::to_string(tp_degree));
    }
}

Layer build_embedding(const ModelSpec& model, const LayerContext& context) {
    LayerBuilder b(model, LayerKind::embedding, context);
    const SlotIndex tokens = b.saved("tokens", {b.rows()}, DType::int32);
    const SlotIndex hidden = b.hidden_out();
    const SlotIndex weight = b.vocabulary_weight("embedding.weight", false);

    b.forward();
    b.op({.kind = OpKind::load_tokens, .rows = b.rows(), .out = {tokens}});
    const SlotIndex looked_up = b.leave_target("embedding.partial", hidden);
    b.op({.kind = OpKind::embedding_forward,
          .rows = b.rows(),
          .n = b.local_vocab(),
          .k = model.hidden,
          .in = {tokens, weight},
          .out = {looked_up}});
    b.leave_region(looked_up, hidden);
    SlotIndex position = kNoSlot;
    if (model.position == PositionKind::learned) {
        position = b.position_weight();
        b.op({.kind = OpKind::position_forward,
              .sequence_sharded = b.sharded(),
              .rows = b.token_rows(),
              .n = model.max_positions,
              .k = model.hidden,
              .in = {hidden, position},
              .out = {hidden}});
    }
    SlotIndex mask = kNoSlot;
    if (context.dropout > 0) {
        mask = b.dropout_mask("dropout");
        b.op({.kind = OpKind::residual_add,
              .rows = b.token_rows(),
              .k = model.hidden,
              .in = {hidden},
              .out = {hidden, mask}});
    }

    b.backward();
    const SlotIndex gradient = b.hidden_gradient();
    if (mask != kNoSlot) {
        b.op({.kind = OpKind::residual_add_backward,
              .rows = b.token_rows(),
              .k = model.hidden,
              .in = {gradient, mask},
              .out = {gradient}});
    }
    if (position != kNoSlot) {
        b.op({.kind = OpKind::position_backward,
              .weight_gradient = true,
              .sequence_sharded = b.sharded(),
              .rows = b.token_rows(),
              .n = model.max_positions,
              .k = model.hidden,
              .in = {gradient},
              .out = {b.gradient_of(position)}});
    }
    const SlotIndex whole = b.enter_region(gradient, "embedding.out.gradient");
    b.op({.kind = OpKind::embedding_backward,
          .weight_gradient = true,
          .rows = b.rows(),
          .n = b.local_vocab(),
          .k = model.hidden,
          .in = {whole, tokens},
          .out = {b.gradient_of(weight)}});
    return b.finish();
}

/// Slots that the two halves of a block share between their passes.
struct AttentionSlots {
    SlotIndex normed, stats, raw, head_stats, qkv, out, lse, probabilities, mask, dropped, residual_mask;
    NormWeights norm;
    SlotIndex qkv_weight, qkv_bias, q_norm, k_norm, o_weight, o_bias;
};
struct MlpSlots {
    SlotIndex normed, stats, fc1_out, activated, residual_mask;
    NormWeights norm;
    SlotIndex fc1_weight, fc1_bias, fc2_weight, fc2_bias;
};

/// x -> x + attention(norm(x)); the result goes to `result`.
AttentionSlots attention_forward(LayerBuilder& b, SlotIndex x, SlotIndex result) {
    const ModelSpec& model = b.model();
    const LayerContext& context = b.context();
    AttentionSlots s{};
    const std::int64_t t = context.tp_degree;
    const std::int64_t heads = model.heads / t;
    const std::int64_t groups = model.kv_heads / t;
    const std::int64_t qkv_width = (heads + 2 * groups) * model.head_dim;

    s.norm = b.norm_weights("norm1");
    std::tie(s.normed, s.stats) = b.norm_forward(x, s.norm, "norm1");
    const SlotIndex normed_full = b.enter_region(s.normed, "norm1.out.full");

    s.qkv_weight = b.column_weight(
        "attention.qkv.weight", {{"attention.q.weight", model.q_width(), model.hidden, heads * model.head_dim, 0},
                                 {"attention.k.weight", model.kv_width(), model.hidden, groups * model.head_dim, 0},
                                 {"attention.v.weight", model.kv_width(), model.hidden, groups * model.head_dim, 0}});
    s.qkv_bias = kNoSlot;
    if (model.qkv_bias) {
        s.qkv_bias = b.column_bias("attention.qkv.bias",
                                   {{"attention.q.bias", model.q_width(), 1, heads * model.head_dim, 1},
                                    {"attention.k.bias", model.kv_width(), 1, groups * model.head_dim, 1},
                                    {"attention.v.bias", model.kv_width(), 1, groups * model.head_dim, 1}});
    }
    s.raw = s.head_stats = s.q_norm = s.k_norm = kNoSlot;
    s.qkv = b.saved("attention.qkv", {b.rows(), qkv_width}, context.activation_dtype);
    if (model.qk_norm) s.raw = b.saved("attention.qkv.raw", {b.rows(), qkv_width}, context.activation_dtype);
    b.linear_forward("attention.qkv", normed_full, s.qkv_weight, s.qkv_bias, model.qk_norm ? s.raw : s.qkv, qkv_width,
                     model.hidden);
    if (model.qk_norm) {
        s.q_norm = b.head_norm_weight("attention.q_norm.weight");
        s.k_norm = b.head_norm_weight("attention.k_norm.weight");
        s.head_stats = b.saved("attention.qk_norm.stats", {b.rows(), heads + groups}, DType::fp32);
        b.op(b.attention_shape(
            {.kind = OpKind::head_norm_forward, .in = {s.raw, s.q_norm, s.k_norm}, .out = {s.qkv, s.head_stats}}));
    }
    if (model.position == PositionKind::rotary) {
        b.op(b.attention_shape({.kind = OpKind::rope_forward, .in = {s.qkv}, .out = {s.qkv}}));
    }
    s.out = b.saved("attention.out", {b.rows(), heads * model.head_dim}, context.activation_dtype);
    s.lse = s.probabilities = s.mask = s.dropped = kNoSlot;
    Operator attention = b.attention_shape({.kind = OpKind::attention_forward, .in = {s.qkv}});
    if (context.implementation.fused_attention) {
        s.lse = b.saved("attention.lse", {heads, b.rows()}, DType::fp32);
        attention.out = {s.out, s.lse, kNoSlot, kNoSlot, kNoSlot, kNoSlot};
        attention.scratch = b.attention_scratch();
    } else {
        const std::vector<std::int64_t> square{context.micro_batch, heads, context.sequence, context.sequence};
        s.probabilities = b.saved("attention.probabilities", square, context.activation_dtype);
        attention.out = {s.out, kNoSlot, s.probabilities, kNoSlot, kNoSlot, kNoSlot};
        if (context.dropout > 0) {
            s.mask = b.saved("attention.dropout.mask", square, DType::uint8);
            s.dropped = b.saved("attention.dropout.out", square, context.activation_dtype);
            attention.out[3] = s.mask;
            attention.out[4] = s.dropped;
        }
    }
    b.op(attention);

    s.o_weight = b.row_weight("attention.o.weight", model.hidden, model.q_width());
    s.o_bias = model.attention_output_bias ? b.row_bias("attention.o.bias") : kNoSlot;
    const SlotIndex projected = b.transient("attention.projected", {b.rows(), model.hidden});
    b.linear_forward("attention.o", s.out, s.o_weight, kNoSlot, projected, model.hidden, heads * model.head_dim);
    const SlotIndex joined = b.leave_region(projected, b.leave_shard("attention.projected.shard", projected));
    s.residual_mask = b.residual_forward(x, joined, s.o_bias, result, "attention.residual");
    return s;
}

MlpSlots mlp_forward(LayerBuilder& b, SlotIndex x, SlotIndex result) {
    const ModelSpec& model = b.model();
    const LayerContext& context = b.context();
    MlpSlots s{};
    const std::int64_t f = model.ffn_hidden / context.tp_degree;
    const bool gated = model.mlp == MlpKind::swiglu;
    const std::int64_t in_width = gated ? 2 * f : f;

    s.norm = b.norm_weights("norm2");
    std::tie(s.normed, s.stats) = b.norm_forward(x, s.norm, "norm2");
    const SlotIndex normed_full = b.enter_region(s.normed, "norm2.out.full");

    std::vector<ParameterPart> weights, biases;
    for (const char* part :
         gated ? std::vector<const char*>{"mlp.gate", "mlp.up"} : std::vector<const char*>{"mlp.fc1"}) {
        weights.push_back({std::string(part) + ".weight", model.ffn_hidden, model.hidden, f, 0});
        biases.push_back({std::string(part) + ".bias", model.ffn_hidden, 1, f, 1});
    }
    s.fc1_weight = b.column_weight("mlp.fc1.weight", weights);
    s.fc1_bias = model.mlp_bias ? b.column_bias("mlp.fc1.bias", biases) : kNoSlot;
    s.fc1_out = b.saved("mlp.fc1.out", {b.rows(), in_width}, context.activation_dtype);
    b.linear_forward("mlp.fc1", normed_full, s.fc1_weight, s.fc1_bias, s.fc1_out, in_width, model.hidden);
    s.activated = b.saved("mlp.activated", {b.rows(), f}, context.activation_dtype);
    b.op({.kind = gated ? OpKind::swiglu_forward : OpKind::gelu_forward,
          .rows = b.rows(),
          .n = f,
          .in = {s.fc1_out},
          .out = {s.activated}});
    const std::string down = gated ? "mlp.down" : "mlp.fc2";
    s.fc2_weight = b.row_weight(down + ".weight", model.hidden, model.ffn_hidden);
    s.fc2_bias = model.mlp_bias ? b.row_bias(down + ".bias") : kNoSlot;
    const SlotIndex projected = b.transient("mlp.projected", {b.rows(), model.hidden});
    b.linear_forward(down, s.activated, s.fc2_weight, kNoSlot, projected, model.hidden, f);
    const SlotIndex joined = b.leave_region(projected, b.leave_shard("mlp.projected.shard", projected));
    s.residual_mask = b.residual_forward(x, joined, s.fc2_bias, result, "mlp.residual");
    return s;
}

/// The gradient that reaches a row-parallel product: the hidden gradient itself, masked and gathered where needed.
SlotIndex branch_gradient(LayerBuilder& b, SlotIndex hidden_gradient, SlotIndex mask, SlotIndex bias,
                          const std::string& name) {
    SlotIndex branch = hidden_gradient;
    if (mask != kNoSlot) {
        branch = b.transient(name + ".masked", {b.token_rows(), b.model().hidden});
        b.op({.kind = OpKind::residual_add_backward,
              .rows = b.token_rows(),
              .k = b.model().hidden,
              .in = {hidden_gradient, mask},
              .out = {branch}});
    }
    if (bias != kNoSlot) {
        b.op({.kind = OpKind::bias_backward,
              .weight_gradient = true,
              .sequence_sharded = b.sharded(),
              .rows = b.token_rows(),
              .n = b.model().hidden,
              .in = {branch},
              .out = {b.gradient_of(bias)}});
    }
    return b.enter_region(branch, name + ".full");
}

void mlp_backward(LayerBuilder& b, const MlpSlots& s, SlotIndex x, SlotIndex gradient) {
    const ModelSpec& model = b.model();
    const std::int64_t f = model.ffn_hidden / b.context().tp_degree;
    const bool gated = model.mlp == MlpKind::swiglu;
    const SlotIndex branch = branch_gradient(b, gradient, s.residual_mask, s.fc2_bias, "mlp.projected.gradient");
    const SlotIndex activated_gradient = b.transient("mlp.activated.gradient", {b.rows(), f});
    b.linear_backward_input(branch, s.fc2_weight, activated_gradient, model.hidden, f);
    b.linear_backward_weight(branch, s.activated, s.fc2_weight, kNoSlot, model.hidden, f);
    const SlotIndex fc1_gradient = gated ? b.transient("mlp.fc1.out.gradient", {b.rows(), 2 * f}) : activated_gradient;
    b.op({.kind = gated ? OpKind::swiglu_backward : OpKind::gelu_backward,
          .rows = b.rows(),
          .n = f,
          .in = {activated_gradient, s.fc1_out},
          .out = {fc1_gradient}});
    b.column_backward("norm2", fc1_gradient, s.normed, s.fc1_weight, s.fc1_bias, gated ? 2 * f : f);
    b.norm_backward(b.column_result(), x, s.norm, s.stats, gradient, gradient);
}

void attention_backward(LayerBuilder& b, const AttentionSlots& s, SlotIndex x, SlotIndex gradient) {
    const ModelSpec& model = b.model();
    const std::int64_t t = b.context().tp_degree;
    const std::int64_t heads_width = model.heads / t * model.head_dim;
    const std::int64_t qkv_width = heads_width + 2 * (model.kv_heads / t) * model.head_dim;
    const SlotIndex branch = branch_gradient(b, gradient, s.residual_mask, s.o_bias, "attention.projected.gradient");
    const SlotIndex out_gradient = b.transient("attention.out.gradient", {b.rows(), heads_width});
    b.linear_backward_input(branch, s.o_weight, out_gradient, model.hidden, heads_width);
    b.linear_backward_weight(branch, s.out, s.o_weight, kNoSlot, model.hidden, heads_width);
    SlotIndex qkv_gradient = b.transient("attention.qkv.gradient", {b.rows(), qkv_width});
    Operator attention = b.attention_shape({.kind = OpKind::attention_backward, .out = {qkv_gradient}});
    if (s.lse != kNoSlot) {
        attention.in = {out_gradient, s.qkv, s.out, s.lse, kNoSlot, kNoSlot};
        attention.scratch = b.attention_scratch();
    } else {
        attention.in = {out_gradient, s.qkv, s.out, s.probabilities, s.mask, s.dropped};
    }
    b.op(attention);
    if (model.position == PositionKind::rotary) {
        b.op(b.attention_shape({.kind = OpKind::rope_backward, .in = {qkv_gradient}, .out = {qkv_gradient}}));
    }
    if (model.qk_norm) {
        const SlotIndex raw_gradient = b.transient("attention.qkv.raw.gradient", {b.rows(), qkv_width});
        b.op(b.attention_shape({.kind = OpKind::head_norm_backward,
                                .in = {qkv_gradient, s.raw, s.q_norm, s.k_norm, s.head_stats},
                                .out = {raw_gradient, b.gradient_of(s.q_norm), b.gradient_of(s.k_norm)}}));
        qkv_gradient = raw_gradient;
    }
    b.column_backward("norm1", qkv_gradient, s.normed, s.qkv_weight, s.qkv_bias, qkv_width);
    b.norm_backward(b.column_result(), x, s.norm, s.stats, gradient, gradient);
}

Layer build_block(const ModelSpec& model, const LayerContext& context) {
    LayerBuilder b(model, LayerKind::block, context);
    b.forward();
    const SlotIndex x = b.hidden_in();
    const SlotIndex middle = b.saved("middle", {b.token_rows(), model.hidden}, context.activation_dtype);
    const AttentionSlots attention = attention_forward(b, x, middle);
    const MlpSlots mlp = mlp_forward(b, middle, b.hidden_out());
    b.backward();
    const SlotIndex gradient = b.hidden_gradient();
    mlp_backward(b, mlp, middle, gradient);
    attention_backward(b, attention, x, gradient);
    return b.finish();
}

Layer build_head(const ModelSpec& model, const LayerContext& context) {
    LayerBuilder b(model, LayerKind::head, context);
    const std::int64_t rows = b.rows();
    b.forward();
    const SlotIndex x = b.hidden_in();
    const SlotIndex targets = b.saved("targets", {rows}, DType::int32);
    b.op({.kind = OpKind::load_targets, .rows = rows, .out = {targets}});
    const NormWeights norm = b.norm_weights("head.norm");
    const auto [normed, stats] = b.norm_forward(x, norm, "head.norm");
    const SlotIndex normed_full = b.enter_region(normed, "head.norm.out.full");
    const SlotIndex weight =
        b.vocabulary_weight(model.tied_embeddings ? "embedding.weight" : "head.weight", context.tied_to_embedding);
    // Logits stay fp32 whatever the activations are: the loss is computed from them.
    const SlotIndex logits = b.saved("logits", {rows, b.local_vocab()}, DType::fp32);
    b.linear_forward("head", normed_full, weight, kNoSlot, logits, b.local_vocab(), model.hidden);
    const SlotIndex row_max = b.transient("loss.max", {rows}, DType::fp32);
    const SlotIndex sums = b.transient("loss.sums", {2, rows}, DType::fp32);
    const SlotIndex lse = b.saved("loss.lse", {rows}, DType::fp32);
    b.op({.kind = OpKind::cross_entropy_max, .rows = rows, .n = b.local_vocab(), .in = {logits}, .out = {row_max}});
    b.reduce_region(Boundary::Kind::reduce_max, row_max);
    b.op({.kind = OpKind::cross_entropy_sum,
          .rows = rows,
          .n = b.local_vocab(),
          .in = {logits, row_max, targets},
          .out = {sums}});
    b.reduce_region(Boundary::Kind::reduce, sums);
    b.op({.kind = OpKind::cross_entropy_loss, .rows = rows, .in = {row_max, sums}, .out = {lse, b.loss()}});

    b.backward();
    b.op({.kind = OpKind::cross_entropy_backward,
          .rows = rows,
          .n = b.local_vocab(),
          .in = {logits, lse, targets},
          .out = {logits}});
    b.column_backward("head.norm", logits, normed, weight, kNoSlot, b.local_vocab());
    b.norm_backward(b.column_result(), x, norm, stats, kNoSlot, b.hidden_gradient());
    return b.finish();
}

}  // namespace

Layer build_layer(const ModelSpec& model, LayerKind kind, const LayerContext& context) {
    check_divides(model, "heads", model.heads, context.tp_degree);
    check_divides(model, "kv_heads", model.kv_heads, context.tp_degree);
    check_divides(model, "ffn_hidden", model.ffn_hidden, context.tp_degree);
    ORRERY_CHECK(context.padded_vocab >= model.vocab && context.padded_vocab % context.tp_degree == 0,
                 "the padded vocabulary does not hold the vocabulary or does not divide");
    if (model.position == PositionKind::learned && context.sequence > model.max_positions) {
        throw InputError(model.name, "sequence_length", std::to_string(context.sequence),
                         "at most max_positions = " + std::to_string(model.max_positions));
    }
    if (context.sequence_parallel && context.sequence % context.tp_degree != 0) {
        throw InputError(model.name, "sequence_length", std::to_string(context.sequence),
                         "a multiple of the tensor-parallel degree under sequence parallelism");
    }
    switch (kind) {
        case LayerKind::embedding:
            return build_embedding(model, context);
        case LayerKind::block:
            return build_block(model, context);
        case LayerKind::head:
            return build_head(model, context);
    }
    throw_bug(__FILE__, __LINE__, "LayerKind", "unknown layer kind");
}

}  // namespace orrery::models
