// The embedding, and the head with the loss.
#include <functional>

#include "core/error.h"
#include "models/layer_parts.h"

namespace orrery::models {
namespace {

/// Adds rows of the tables that are replicated over tensor-parallel ranks: positions and token types.
std::vector<SlotIndex> add_tables(LayerBuilder& b, SlotIndex hidden) {
    const ModelSpec& model = b.model();
    std::vector<SlotIndex> tables;
    const auto add_table = [&](const std::string& name, std::int64_t entries) {
        tables.push_back(b.table_weight(name, entries));
        b.op({.kind = OpKind::position_forward,
              .sequence_sharded = b.sharded(),
              .rows = b.token_rows(),
              .n = entries,
              .k = model.hidden,
              .in = {hidden, tables.back()},
              .out = {hidden}});
    };
    if (model.position == PositionKind::learned) {
        add_table("position.weight", model.max_positions + model.position_offset);
    }
    if (model.token_types > 0) add_table("token_type.weight", model.token_types);
    return tables;
}

/// Returns the mask.
SlotIndex dropout_in_place(LayerBuilder& b, SlotIndex hidden) {
    const SlotIndex mask = b.dropout_mask("dropout");
    b.op({.kind = OpKind::residual_add,
          .sequence_sharded = b.sharded(),
          .rows = b.token_rows(),
          .k = b.model().hidden,
          .in = {hidden},
          .out = {hidden, mask}});
    return mask;
}

}  // namespace

Layer build_embedding(const ModelSpec& model, const LayerContext& context) {
    LayerBuilder b(model, LayerKind::embedding, context);
    const std::int64_t tokens_here = b.token_rows();
    const SlotIndex tokens = b.saved("tokens", {b.rows()}, DType::int32);
    const SlotIndex out = b.hidden_out();
    const SlotIndex weight = b.vocabulary_weight("embedding.weight", false);
    const SlotIndex hidden = model.embedding_norm ? b.saved("embedding.sum", {tokens_here, model.hidden}) : out;

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
    const std::vector<SlotIndex> tables = add_tables(b, hidden);
    Norm norm;
    if (model.embedding_norm) {
        norm = b.norm_forward(hidden, b.norm_weights("embedding.norm", model.hidden), "embedding.norm", tokens_here,
                              false, out);
    }
    const SlotIndex mask = context.dropout > 0 ? dropout_in_place(b, out) : kNoSlot;

    b.backward();
    const SlotIndex gradient = b.hidden_gradient();
    if (mask != kNoSlot) {
        b.op({.kind = OpKind::residual_add_backward,
              .rows = tokens_here,
              .k = model.hidden,
              .in = {gradient, mask},
              .out = {gradient}});
    }
    if (model.embedding_norm) b.norm_backward(gradient, norm, kNoSlot, gradient);
    for (auto table = tables.rbegin(); table != tables.rend(); ++table) {
        b.op({.kind = OpKind::position_backward,
              .weight_gradient = true,
              .sequence_sharded = b.sharded(),
              .rows = tokens_here,
              .n = b.slot(*table).shape.front(),
              .k = model.hidden,
              .in = {gradient},
              .out = {b.gradient_of(*table)}});
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

namespace {

/// BERT's linear h x h, activation and norm before the vocabulary product, replicated over tensor-parallel ranks.
struct HeadTransform {
    Product product;
    SlotIndex x = kNoSlot, raw = kNoSlot;
    Norm norm;
};

HeadTransform transform_forward(LayerBuilder& b, SlotIndex x) {
    const std::int64_t h = b.model().hidden, tokens = b.token_rows();
    HeadTransform t{.x = x};
    t.product = b.product("head.transform", b.replicated_weight("head.transform.weight", h, h, true),
                          b.replicated_bias("head.transform.bias", h, true), h, h, BlockPart::none, false);
    t.raw = b.saved("head.transform.raw", {tokens, h});
    b.product_forward(t.product, x, t.raw);
    const SlotIndex activated = b.saved("head.transform.activated", {tokens, h});
    const bool relu = b.model().mlp == MlpKind::relu;
    b.op({.kind = relu ? OpKind::relu_forward : OpKind::gelu_forward,
          .rows = tokens,
          .n = h,
          .in = {t.raw},
          .out = {activated}});
    t.norm = b.norm_forward(activated, b.norm_weights("head.transform.norm", h), "head.transform.norm", tokens, false);
    return t;
}

void transform_backward(LayerBuilder& b, const HeadTransform& t, SlotIndex gradient, SlotIndex result) {
    const std::int64_t h = b.model().hidden, tokens = b.token_rows();
    const SlotIndex activated = b.transient("head.transform.activated.gradient", {tokens, h});
    b.norm_backward(gradient, t.norm, kNoSlot, activated);
    const bool relu = b.model().mlp == MlpKind::relu;
    b.op({.kind = relu ? OpKind::relu_backward : OpKind::gelu_backward,
          .rows = tokens,
          .n = h,
          .in = {activated, t.raw},
          .out = {activated}});
    b.product_backward_input(t.product, activated, result);
    b.product_backward_weight(t.product, activated, t.x, tokens);
}

/// The loss over this rank's part of the logits. With a fused loss the product writes the logits, in fp32 unless
/// KernelChoices::narrow_logits is set, and their gradient overwrites them. Without, 16-bit results of the product are
/// kept and cast to fp32.
struct HeadLoss {
    Product product;
    std::int64_t width = 0;    // of the logits
    bool is_gathered = false;  // `width` is the whole vocabulary, while the product computes only a part of it
    SlotIndex targets = kNoSlot;
    SlotIndex narrow = kNoSlot;  // the product's result in 16 bits
    SlotIndex logits = kNoSlot;
    SlotIndex gradient = kNoSlot;  // of the logits; with corrected statistics, first the exponentials of the logits
    SlotIndex row_max = kNoSlot, lse = kNoSlot;
};

SoftmaxStatistics statistics_of(const LayerBuilder& b) {
    return b.context().tp_degree == 1 ? SoftmaxStatistics::reduced : b.context().softmax_statistics;
}

/// Gathers the statistics of all ranks.
SlotIndex gather_statistics(LayerBuilder& b, const std::string& name, SlotIndex own) {
    std::vector<std::int64_t> shape = b.slot(own).shape;
    shape.insert(shape.begin(), b.context().tp_degree);
    const SlotIndex all = b.transient(name, shape, DType::fp32);
    b.boundary(Boundary::Kind::gather, Boundary::Axis::tp, own, all, b.slot(all).elements());
    return all;
}

void loss_forward(LayerBuilder& b, HeadLoss& loss) {
    const std::int64_t rows = b.rows(), n = loss.width;
    SoftmaxStatistics statistics = statistics_of(b);
    const bool over_ranks = statistics == SoftmaxStatistics::reduced && !loss.is_gathered && b.tp() > 1;
    // The exponentials that a correction needs are relative to the maximum.
    const bool online = b.kernels().online_softmax && statistics != SoftmaxStatistics::corrected;
    if (online && over_ranks) statistics = SoftmaxStatistics::gathered;  // sums cannot wait for the ranks' maximum
    const bool reduces = statistics == SoftmaxStatistics::reduced;
    loss.row_max = b.transient("loss.max", {rows}, DType::fp32);
    const SlotIndex sums = b.transient("loss.sums", {2, rows}, DType::fp32);
    loss.lse = b.saved("loss.lse", {rows}, DType::fp32);
    if (!online) {
        b.op({.kind = OpKind::cross_entropy_max, .rows = rows, .n = n, .in = {loss.logits}, .out = {loss.row_max}});
    }
    const bool corrects = statistics == SoftmaxStatistics::corrected;
    if (reduces && over_ranks) b.reduce_region(Boundary::Kind::reduce_max, loss.row_max);
    b.op({.kind = OpKind::cross_entropy_sum,
          .rows = rows,
          .n = n,
          .in = {loss.logits, online ? kNoSlot : loss.row_max, loss.targets},
          .out = {sums, corrects ? loss.gradient : kNoSlot, online ? loss.row_max : kNoSlot}});
    if (reduces) {
        if (over_ranks) b.reduce_region(Boundary::Kind::reduce, sums);
        b.op({.kind = OpKind::cross_entropy_loss,
              .rows = rows,
              .in = {loss.row_max, sums},
              .out = {loss.lse, b.loss()}});
        return;
    }
    const SlotIndex maxima = gather_statistics(b, "loss.max.all", loss.row_max);
    const SlotIndex all_sums = gather_statistics(b, "loss.sums.all", sums);
    b.op({.kind = OpKind::cross_entropy_loss,
          .rows = rows,
          .n = n,
          .sources = b.context().tp_degree,
          .in = {maxima, all_sums, loss.targets},
          .out = {loss.lse, b.loss()}});
}

constexpr const char* kNarrowGradient = "logits.narrow.gradient";

/// The gradient of the logits in the type that the backward products read.
SlotIndex narrowed(LayerBuilder& b, const HeadLoss& loss, const std::string& name) {
    if (loss.narrow == kNoSlot) return loss.gradient;
    const SlotIndex cast = b.transient(name, b.slot(loss.logits).shape);
    Operator& op = b.op(
        {.kind = OpKind::cast, .elements = b.slot(loss.gradient).elements(), .in = {loss.gradient}, .out = {cast}});
    // An operand only to keep the narrow logits alive until here; they are not read.
    if (b.kernels().keeps_narrow_logits) op.in[1] = loss.narrow;
    return cast;
}

/// The part of that gradient for the rank's own vocabulary.
SlotIndex own_gradient(LayerBuilder& b, const HeadLoss& loss) {
    const SlotIndex gradient = narrowed(b, loss, kNarrowGradient);
    if (!loss.is_gathered) return gradient;
    const SlotIndex own = b.transient("logits.own.gradient", {b.rows(), b.local_vocab()}, b.slot(gradient).dtype);
    // The columns differ from rank to rank, but the cost of copying them does not.
    b.columns(OpKind::copy_columns, gradient, 0, own, 0, b.local_vocab());
    return own;
}

/// Computes the logits, gathers them if needed, and casts narrow ones to fp32.
void logits_forward(LayerBuilder& b, const ColumnInput& input, const HeadLoss& loss) {
    const SlotIndex result = loss.narrow != kNoSlot ? loss.narrow : loss.logits;
    if (loss.is_gathered) {
        const SlotIndex own = b.transient("logits.own", {b.rows(), b.local_vocab()}, b.slot(result).dtype);
        b.column_forward(input, loss.product, own);
        b.boundary(Boundary::Kind::gather, Boundary::Axis::tp, own, result, b.slot(result).elements());
    } else {
        b.column_forward(input, loss.product, result);
    }
    if (loss.narrow == kNoSlot) return;
    b.op({.kind = OpKind::cast, .elements = b.slot(loss.logits).elements(), .in = {loss.narrow}, .out = {loss.logits}});
}

/// Computes the gradient of the hidden state from the exponentials while the other ranks' statistics are in flight, and
/// corrects it afterwards.
void corrected_backward(LayerBuilder& b, const ColumnInput& input, const HeadLoss& loss,
                        const std::function<void(SlotIndex)>& then) {
    ORRERY_CHECK(!b.sharded(), "corrected softmax statistics do not support sequence parallelism");
    const std::int64_t rows = b.rows(), h = b.model().hidden;
    const SlotIndex dx = b.transient(input.name + ".out.gradient", {rows, h});
    b.product_backward_input(loss.product, narrowed(b, loss, "logits.narrow.exponentials"), dx);
    b.op({.kind = OpKind::cross_entropy_correct,
          .rows = rows,
          .n = b.local_vocab(),
          .k = h,
          .in = {dx, loss.row_max, loss.lse, loss.targets, loss.product.weight},
          .out = {dx}});
    const SlotIndex reduced = b.leave_region(dx, dx);
    b.op({.kind = OpKind::cross_entropy_backward,
          .rows = rows,
          .n = b.local_vocab(),
          .in = {loss.gradient, loss.lse, loss.targets, loss.row_max},
          .out = {loss.gradient}});
    b.product_backward_weight(loss.product, narrowed(b, loss, kNarrowGradient), input.kept, rows);
    then(reduced);
}

}  // namespace

Layer build_head(const ModelSpec& model, const LayerContext& context) {
    LayerBuilder b(model, LayerKind::head, context);
    const std::int64_t rows = b.rows();
    const bool fused_loss = b.kernels().fused_cross_entropy;
    b.forward();
    const SlotIndex x = b.hidden_in();
    HeadLoss loss{.targets = b.saved("targets", {rows}, DType::int32)};
    b.op({.kind = OpKind::load_targets, .rows = rows, .out = {loss.targets}});
    Norm norm;
    HeadTransform transform;
    SlotIndex last = x;
    std::string last_name = "hidden";
    if (model.final_norm) {
        norm = b.norm_forward(last, b.norm_weights("head.norm", model.hidden), "head.norm", b.token_rows(), false);
        last = norm.y;
        last_name = "head.norm";
    }
    if (model.head_transform) {
        transform = transform_forward(b, last);
        last = transform.norm.y;
        last_name = "head.transform.norm";
    }
    const ColumnInput input = b.column_input(last, last_name, model.hidden, false, BlockPart::none, false);
    const SlotIndex weight =
        b.vocabulary_weight(model.tied_embeddings ? "embedding.weight" : "head.weight", context.tied_to_embedding);
    const SlotIndex bias = model.head_bias ? b.vocabulary_bias("head.bias") : kNoSlot;
    loss.product = b.product("head", weight, bias, b.local_vocab(), model.hidden, BlockPart::none, false);
    const bool copies = !fused_loss && context.activation_dtype != DType::fp32;
    const bool by_framework =
        b.kernels().gathers_logits && !fused_loss && statistics_of(b) == SoftmaxStatistics::reduced;
    loss.is_gathered = by_framework && context.tp_degree > 1;
    loss.width = b.local_vocab() * (loss.is_gathered ? context.tp_degree : 1);
    const std::vector<std::int64_t> shape{rows, loss.width};
    if (copies) {
        loss.narrow =
            b.kernels().keeps_narrow_logits ? b.saved(kNarrowLogits, shape) : b.transient(kNarrowLogits, shape);
    }
    const bool narrow = fused_loss && b.kernels().narrow_logits;
    loss.logits = b.saved("logits", shape, narrow ? context.activation_dtype : DType::fp32);
    loss.gradient = fused_loss ? loss.logits : b.transient("logits.gradient", shape, DType::fp32);
    logits_forward(b, input, loss);
    loss_forward(b, loss);

    b.backward();
    const auto after = [&](SlotIndex from_head) {
        if (model.head_transform) {
            const SlotIndex before = model.final_norm
                                         ? b.transient("head.transform.in.gradient", {b.token_rows(), model.hidden})
                                         : b.hidden_gradient();
            transform_backward(b, transform, from_head, before);
            from_head = before;
        }
        if (model.final_norm) b.norm_backward(from_head, norm, kNoSlot, b.hidden_gradient());
    };
    if (statistics_of(b) == SoftmaxStatistics::corrected) {
        corrected_backward(b, input, loss, after);
        return b.finish();
    }
    Operator& loss_backward = b.op({.kind = OpKind::cross_entropy_backward,
                                    .rows = rows,
                                    .n = loss.width,
                                    .in = {loss.logits, loss.lse, loss.targets},
                                    .out = {loss.gradient}});
    if (by_framework) {  // it first stores the gradient of the log-probabilities in a tensor of its own
        loss_backward.scratch = b.transient("logits.logarithms.gradient", shape, DType::fp32);
    }
    const bool direct = !model.head_transform && !model.final_norm;
    b.column_backward(input, {{&loss.product, own_gradient(b, loss)}}, after, direct ? b.hidden_gradient() : kNoSlot);
    return b.finish();
}

}  // namespace orrery::models
