// The projections of attention: q, k and v from the norm's output, and the output product.
#include <algorithm>

#include "models/layer_parts.h"

namespace orrery::models {
namespace {

AttentionShape attention_shape(const LayerBuilder& b) {
    const ModelSpec& model = b.model();
    // With more ranks than key/value heads each rank holds a copy of one.
    return {.heads = model.heads / b.tp(),
            .kv_heads = std::max<std::int64_t>(model.kv_heads / b.tp(), 1),
            .head_dim = model.head_dim,
            .value_dim = model.head_dim};
}

Operator shaped(const LayerBuilder& b, const AttentionShape& shape, Operator op) {
    op.rows = b.rows();
    op.heads = shape.heads;
    op.kv_heads = shape.kv_heads;
    op.head_dim = shape.head_dim;
    return op;
}

/// The rotation of q and k inside `qkv`, or its inverse. Eager: x cos + rotate_half(x) sin as separate passes. Nothing
/// is saved, since the tables of cos and sin have no gradient.
void rotate(LayerBuilder& b, const AttentionShape& shape, OpKind kind, SlotIndex qkv) {
    if (b.kernels().fused_rope) {
        b.op(shaped(b, shape, {.kind = kind, .in = {qkv}, .out = {qkv}}));
        return;
    }
    const std::int64_t width = (shape.heads + shape.kv_heads) * shape.head_dim;
    const std::int64_t elements = b.rows() * width;
    const std::string name = b.slot(qkv).name;
    const SlotIndex straight = b.transient(name + ".cosine", {b.rows(), width});
    const SlotIndex turned = b.transient(name + ".turned", {b.rows(), width});
    b.op({.kind = OpKind::multiply, .elements = elements, .in = {qkv}, .out = {straight}});
    b.copy(qkv, turned, elements);
    b.op({.kind = OpKind::multiply, .elements = elements, .in = {turned}, .out = {turned}});
    b.op(shaped(b, shape, {.kind = kind, .in = {straight, turned}, .out = {qkv}}));
}

/// Copies keys and values to a tensor of their own and back.
void join_kv(LayerBuilder& b, const AttentionShape& shape, SlotIndex qkv) {
    const std::int64_t q = shape.q_width(), kv = shape.kv_width();
    const SlotIndex joined = b.transient(b.slot(qkv).name + ".kv", {b.rows(), kv});
    b.columns(OpKind::copy_columns, qkv, q, joined, 0, kv);
    b.columns(OpKind::copy_columns, joined, 0, qkv, q, kv);
}

bool copies_qkv(const LayerBuilder& b) {
    const KernelChoices& kernels = b.kernels();
    return kernels.merged_projections && kernels.copies_qkv && kernels.fused_attention && !b.model().qk_norm;
}
bool concatenates_gradients(const LayerBuilder& b) {
    const KernelChoices& kernels = b.kernels();
    const bool side_by_side =
        kernels.fused_attention && kernels.attention_kernel == "cudnn" && b.model().position != PositionKind::rotary;
    return kernels.merged_projections && kernels.splits_projections && !side_by_side;
}

}  // namespace

QkvProjection qkv_forward(LayerBuilder& b, const ColumnInput& input) {
    const ModelSpec& model = b.model();
    b.part(BlockPart::attention_projection);
    QkvProjection p{.shape = attention_shape(b)};
    const std::int64_t h = model.hidden;
    const std::int64_t q = p.shape.q_width(), kv = p.shape.kv_heads * p.shape.head_dim;
    const std::int64_t width = q + 2 * kv;
    const bool copied = b.tp() > model.kv_heads;
    const GradientSum sum = copied ? GradientSum::kv_group : GradientSum::none;
    std::vector<ParameterPart> weights{{"attention.q.weight", model.q_width(), h, q, 0},
                                       {"attention.k.weight", model.kv_width(), h, kv, 0},
                                       {"attention.v.weight", model.kv_width(), h, kv, 0}};
    std::vector<ParameterPart> biases{{"attention.q.bias", model.q_width(), 1, q, 1},
                                      {"attention.k.bias", model.kv_width(), 1, kv, 1},
                                      {"attention.v.bias", model.kv_width(), 1, kv, 1}};
    std::int64_t column = 0;
    const auto add = [&](const std::string& name, std::size_t first, std::size_t last, std::int64_t n,
                         GradientSum gradient_sum) {
        const auto range = [&](const std::vector<ParameterPart>& parts) {
            return std::vector<ParameterPart>(parts.begin() + static_cast<std::ptrdiff_t>(first),
                                              parts.begin() + static_cast<std::ptrdiff_t>(last));
        };
        const SlotIndex weight = b.column_weight(name + ".weight", range(weights), gradient_sum);
        const SlotIndex bias = model.qkv_bias ? b.column_bias(name + ".bias", range(biases), gradient_sum) : kNoSlot;
        Product& product =
            p.products.emplace_back(b.product(name, weight, bias, n, h, BlockPart::attention_projection, input.fp8));
        product.first_column = column;
        column += n;
    };
    if (!b.kernels().merged_projections) {
        add("attention.q", 0, 1, q, GradientSum::none);
        add("attention.k", 1, 2, kv, sum);
        add("attention.v", 2, 3, kv, sum);
    } else if (copied) {
        add("attention.q", 0, 1, q, GradientSum::none);
        add("attention.kv", 1, 3, 2 * kv, sum);
    } else {
        add("attention.qkv", 0, 3, width, GradientSum::none);
    }
    p.qkv = attention_input(b, p.shape);
    SlotIndex produced = p.qkv;
    if (model.qk_norm) produced = p.raw = b.saved("attention.qkv.raw", {b.rows(), width});
    if (copies_qkv(b)) produced = b.transient("attention.qkv.views", {b.rows(), width});
    for (const Product& product : p.products) b.column_forward(input, product, produced);
    if (copies_qkv(b)) b.copy(produced, p.qkv, b.rows() * width);
    if (model.qk_norm) {
        p.q_norm = b.head_norm_weight("attention.q_norm.weight");
        p.k_norm = b.head_norm_weight("attention.k_norm.weight");
        p.head_stats = b.saved("attention.qk_norm.stats", {b.rows(), p.shape.heads + p.shape.kv_heads}, DType::fp32);
        b.op(shaped(
            b, p.shape,
            {.kind = OpKind::head_norm_forward, .in = {p.raw, p.q_norm, p.k_norm}, .out = {p.qkv, p.head_stats}}));
    }
    if (model.position == PositionKind::rotary) {
        if (b.kernels().joins_kv) join_kv(b, p.shape, p.qkv);
        rotate(b, p.shape, OpKind::rope_forward, p.qkv);
    }
    return p;
}

std::vector<LayerBuilder::ColumnGradient> qkv_backward(LayerBuilder& b, const QkvProjection& p,
                                                       SlotIndex qkv_gradient) {
    b.part(BlockPart::attention_projection);
    if (b.model().position == PositionKind::rotary) {
        rotate(b, p.shape, OpKind::rope_backward, qkv_gradient);
        if (b.kernels().joins_kv) join_kv(b, p.shape, qkv_gradient);
    }
    if (b.model().qk_norm) {
        const SlotIndex raw_gradient = b.transient("attention.qkv.raw.gradient", b.slot(p.raw).shape);
        b.op(shaped(b, p.shape,
                    {.kind = OpKind::head_norm_backward,
                     .in = {qkv_gradient, p.raw, p.q_norm, p.k_norm, p.head_stats},
                     .out = {raw_gradient, b.gradient_of(p.q_norm), b.gradient_of(p.k_norm)}}));
        qkv_gradient = raw_gradient;
    }
    if (concatenates_gradients(b)) {
        const SlotIndex joined = b.transient("attention.qkv.gradient.joined", b.slot(qkv_gradient).shape);
        b.copy(qkv_gradient, joined, b.slot(joined).elements());
        qkv_gradient = joined;
    }
    std::vector<LayerBuilder::ColumnGradient> gradients;
    for (const Product& product : p.products) gradients.push_back({&product, qkv_gradient});
    return gradients;
}

LatentProjection latent_forward(LayerBuilder& b, SlotIndex normed) {
    const ModelSpec& model = b.model();
    const LatentAttention& latent = model.latent;
    const std::int64_t h = model.hidden, heads = model.heads / b.tp();
    const std::int64_t qk = latent.nope_head_dim + latent.rope_head_dim;
    const std::int64_t tokens = b.token_rows();
    const bool fp8 = b.fp8();
    constexpr BlockPart kPart = BlockPart::attention_projection;
    LatentProjection p;
    p.shape = {.heads = heads, .kv_heads = heads, .head_dim = qk, .value_dim = latent.v_head_dim};

    // The cast of the norm's output belongs to the part of the norm.
    p.down_input = b.cast_for_products("norm1.out.down", normed, fp8, true);
    const bool query_latent = latent.q_lora_rank > 0;
    if (!query_latent) p.q_input = b.column_input(normed, "norm1", h, fp8, kPart);
    b.part(kPart);
    if (query_latent) {
        const std::int64_t rank = latent.q_lora_rank;
        p.q_down = b.product("attention.q_down", b.replicated_weight("attention.q_down.weight", rank, h, true), kNoSlot,
                             rank, h, kPart, fp8);
        const SlotIndex raw = b.saved("attention.q_latent.raw", {tokens, rank});
        b.product_forward(p.q_down, p.down_input.row, raw);
        p.q_norm = b.norm_forward(raw, b.norm_weights("attention.q_latent_norm", rank), "attention.q_latent_norm",
                                  tokens, fp8);
        p.q_input = b.column_input(p.q_norm.y, "attention.q_latent", rank, fp8, kPart);
    }
    const std::string q_name = query_latent ? "attention.q_up" : "attention.q";
    const std::int64_t q_in = query_latent ? latent.q_lora_rank : h;
    p.q_up = b.product(
        q_name, b.column_weight(q_name + ".weight", {{q_name + ".weight", model.heads * qk, q_in, heads * qk, 0}}),
        kNoSlot, heads * qk, q_in, kPart, fp8);
    const SlotIndex q_raw = b.transient("attention.q.raw", {b.rows(), heads * qk});
    b.column_forward(p.q_input, p.q_up, q_raw);

    // The rotated key part that all heads share is computed together with the latent of keys and values.
    const std::int64_t rank = latent.kv_lora_rank, wide = rank + latent.rope_head_dim;
    p.kv_down = b.product("attention.kv_down", b.replicated_weight("attention.kv_down.weight", wide, h, true), kNoSlot,
                          wide, h, kPart, fp8);
    const SlotIndex kv_raw = b.saved("attention.kv_latent.raw", {tokens, wide});
    b.product_forward(p.kv_down, p.down_input.row, kv_raw);
    const SlotIndex kv_latent = b.product_input("attention.kv_latent.out", {tokens, wide}, fp8);
    p.kv_norm = b.norm_forward(kv_raw, b.norm_weights("attention.kv_latent_norm", rank), "attention.kv_latent_norm",
                               tokens, fp8, kv_latent);
    p.kv_input = b.column_input(kv_latent, "attention.kv_latent", wide, fp8, kPart, false);
    const std::int64_t each = latent.nope_head_dim + latent.v_head_dim;
    p.kv_up = b.product("attention.kv_up",
                        b.column_weight("attention.kv_up.weight",
                                        {{"attention.kv_up.weight", model.heads * each, rank, heads * each, 0}}),
                        kNoSlot, heads * each, rank, kPart, fp8);
    const SlotIndex kv = b.transient("attention.kv.raw", {b.rows(), heads * each});
    b.column_forward(p.kv_input, p.kv_up, kv);

    // The rotation of the rope parts, which also assembles q, k and v.
    p.qkv = attention_input(b, p.shape);
    b.op(shaped(b, p.shape,
                {.kind = OpKind::rope_forward,
                 .n = (heads + 1) * latent.rope_head_dim,
                 .in = {q_raw, kv, p.kv_input.whole},
                 .out = {p.qkv}}));
    return p;
}

SlotIndex latent_backward(LayerBuilder& b, const LatentProjection& p, SlotIndex qkv_gradient) {
    const LatentAttention& latent = b.model().latent;
    const std::int64_t h = b.model().hidden, tokens = b.token_rows();
    const bool fp8 = b.fp8();
    b.part(BlockPart::attention_projection);
    const SlotIndex q = b.transient("attention.q.raw.gradient", {b.rows(), p.q_up.n});
    const SlotIndex kv = b.transient("attention.kv.raw.gradient", {b.rows(), p.kv_up.n});
    const SlotIndex rope = b.transient("attention.k_rope.gradient", {b.rows(), latent.rope_head_dim});
    b.op(shaped(b, p.shape,
                {.kind = OpKind::rope_backward,
                 .n = (p.shape.heads + 1) * latent.rope_head_dim,
                 .in = {qkv_gradient},
                 .out = {q, kv, rope}}));
    SlotIndex q_latent = kNoSlot, kv_latent = kNoSlot;
    b.column_backward(p.q_input, {{&p.q_up, q}}, [&](SlotIndex gradient) { q_latent = gradient; });
    b.column_backward(
        p.kv_input, {{&p.kv_up, kv}}, [&](SlotIndex gradient) { kv_latent = gradient; }, kNoSlot, rope);
    // The norms' input gradients overwrite their output gradients; the shared key's gradient passes through unchanged.
    SlotIndex gradient = kNoSlot;
    const auto down = [&](const Product& product, SlotIndex dy) {
        const Operand operand = b.cast_for_products(product.name + ".gradient", dy, fp8, false);
        const SlotIndex dx = b.transient(product.name + ".in.gradient", {tokens, h});
        b.product_backward_input(product, operand.row, dx);
        if (gradient == kNoSlot) {
            gradient = dx;
        } else {
            b.accumulate(dx, gradient);
        }
        b.product_backward_weight(product, operand.column, p.down_input.column, tokens);
    };
    if (latent.q_lora_rank > 0) {
        b.norm_backward(q_latent, p.q_norm, kNoSlot, q_latent);
        down(p.q_down, q_latent);
    } else {
        gradient = q_latent;
    }
    b.norm_backward(kv_latent, p.kv_norm, kNoSlot, kv_latent);
    down(p.kv_down, kv_latent);
    return gradient;
}

Attention attention_forward(LayerBuilder& b, SlotIndex normed, const std::string& norm_name,
                            const ColumnInput* shared) {
    const ModelSpec& model = b.model();
    Attention a;
    const bool fp8 = b.fp8();
    AttentionShape shape;
    SlotIndex qkv = kNoSlot;
    if (model.has_latent_attention()) {
        a.latent = latent_forward(b, normed);
        shape = a.latent.shape;
        qkv = a.latent.qkv;
    } else {
        a.input = shared != nullptr
                      ? *shared
                      : b.column_input(normed, norm_name, model.hidden, fp8, BlockPart::attention_projection);
        a.projection = qkv_forward(b, a.input);
        shape = a.projection.shape;
        qkv = a.projection.qkv;
    }
    a.core = attention_core_forward(b, shape, qkv, fp8);
    const SlotIndex weight = b.row_weight("attention.o.weight", model.hidden, model.heads * shape.value_dim);
    a.output =
        b.product("attention.o", weight, kNoSlot, model.hidden, shape.out_width(), BlockPart::attention_output, fp8);
    a.bias = model.attention_output_bias ? b.row_bias("attention.o.bias") : kNoSlot;
    a.out = b.cast_for_products("attention.out", a.core.out, fp8, true);
    return a;
}

SlotIndex attention_backward(LayerBuilder& b, const Attention& a, BranchGradient& branch) {
    const SlotIndex out_gradient = b.transient("attention.out.gradient", {b.rows(), a.output.k});
    b.row_backward(a.output, branch, a.out.column, out_gradient);
    return attention_core_backward(b, a.core, out_gradient);
}

void attention_input_backward(LayerBuilder& b, const Attention& a, SlotIndex qkv_gradient,
                              const std::function<void(SlotIndex)>& then) {
    if (b.model().has_latent_attention()) {
        then(latent_backward(b, a.latent, qkv_gradient));
        return;
    }
    b.column_backward(a.input, qkv_backward(b, a.projection, qkv_gradient), then);
}

}  // namespace orrery::models
