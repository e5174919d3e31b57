// Attention from q, k and v to o, on one rank or over context-parallel ranks.
#include <algorithm>

#include "core/error.h"
#include "core/units.h"
#include "models/layer_parts.h"

namespace orrery::models {
namespace {

/// One rank's attention call: its query heads and rows over `keys` keys.
struct View {
    AttentionShape shape;
    std::int64_t rows = 0, queries = 0, keys = 0;
    KeyPart part = KeyPart::own;
    std::int64_t ring_step = 0;
    std::int64_t stored_keys = 0;  // positions in the key slot, attended or not; 0: `keys`
};

Operator attention_op(const View& view, OpKind kind) {
    return {.kind = kind,
            .rows = view.rows,
            .heads = view.shape.heads,
            .kv_heads = view.shape.kv_heads,
            .head_dim = view.shape.head_dim,
            .value_dim = view.shape.value_dim == view.shape.head_dim ? 0 : view.shape.value_dim,
            .sequence = view.keys,
            .queries = view.queries,
            .keys = view.part,
            .ring_step = view.ring_step};
}

bool is_ulysses(const LayerBuilder& b) {
    return b.context().cp_degree > 1 && b.context().context_parallel == ContextParallel::ulysses;
}
bool repeats_heads(const LayerBuilder& b, const AttentionShape& shape) {
    return b.kernels().repeats_kv_heads && b.context().cp_degree == 1 && shape.kv_heads < shape.heads;
}

/// Key/value heads that Ulysses distributes evenly; repeated if there are fewer than ranks.
std::int64_t exchanged_kv_heads(const LayerBuilder& b, const AttentionShape& shape) {
    return std::max(shape.kv_heads, b.context().cp_degree);
}

/// Attended pairs in the ring step with the keys of the rank `step` places before. Each rank holds chunks i and 2c-1-i
/// of 2c (zig-zag). Its own keys form a causal square; with any other rank's keys, either half of the queries attend to
/// all keys or all queries attend to half of the keys.
double ring_pairs(const LayerBuilder& b, std::int64_t step) {
    const auto local = static_cast<double>(b.positions());
    if (step == 0) return b.attended_pairs(b.positions());
    return b.model().causal && b.kernels().causal_skip ? local * local / 2 : local * local;
}
std::int64_t ring_keys(const LayerBuilder& b, std::int64_t step) {
    return step > 0 && b.model().causal && b.kernels().causal_skip ? b.positions() / 2 : b.positions();
}

void unfused_forward(LayerBuilder& b, const View& view, AttentionCore& core, SlotIndex qkv, SlotIndex out) {
    const std::vector<std::int64_t> square{b.context().micro_batch, view.shape.heads, view.queries, view.keys};
    const double pairs = b.attended_pairs(view.keys);
    const std::int64_t elements =
        checked_product(checked_product(square[0], square[1]), checked_product(square[2], square[3]));
    const SlotIndex scores = b.transient("attention.scores", square);
    Operator op = attention_op(view, OpKind::scores_forward);
    op.in = {qkv};
    op.out = {scores};
    b.op(op, pairs);
    SlotIndex masked = kNoSlot;
    if (!b.kernels().fused_softmax) {
        // Each pass of an eager framework writes a new tensor, so scores and masked scores exist at the same time.
        masked = b.transient("attention.scores.masked", square);
        b.op({.kind = OpKind::multiply, .elements = elements, .in = {scores}, .out = {scores}});  // the scale
        b.op({.kind = OpKind::bias_add, .elements = elements, .in = {scores}, .out = {scores}, .scratch = masked});
    }
    core.probabilities = b.saved("attention.probabilities", square);
    b.op({.kind = OpKind::softmax_forward,
          .elements = elements,
          .in = {scores},
          .out = {core.probabilities},
          .scratch = masked});
    SlotIndex weights = core.probabilities;
    if (b.context().dropout > 0) {
        core.mask = b.saved("attention.dropout.mask", square, DType::uint8);
        core.dropped = b.saved("attention.dropout.out", square);
        b.op({.kind = OpKind::dropout_forward,
              .elements = elements,
              .in = {core.probabilities},
              .out = {core.dropped, core.mask}});
        weights = core.dropped;
    }
    op = attention_op(view, OpKind::context_forward);
    op.in = {weights, qkv};
    op.out = {out};
    b.op(op, pairs);
}

void unfused_backward(LayerBuilder& b, const View& view, const AttentionCore& core, SlotIndex out_gradient,
                      SlotIndex qkv_gradient) {
    const SlotDecl square = b.slot(core.probabilities);
    const double pairs = b.attended_pairs(view.keys);
    const SlotIndex gradient = b.transient("attention.scores.gradient", square.shape);
    const SlotIndex weights = core.dropped == kNoSlot ? core.probabilities : core.dropped;
    Operator op = attention_op(view, OpKind::context_backward);
    op.in = {out_gradient, weights, core.qkv};
    op.out = {gradient, qkv_gradient};
    b.op(op, pairs);
    const std::int64_t elements = square.elements();
    if (core.mask != kNoSlot) {
        b.op({.kind = OpKind::dropout_backward, .elements = elements, .in = {gradient, core.mask}, .out = {gradient}});
    }
    const bool eager = !b.kernels().fused_softmax;
    b.op({.kind = OpKind::softmax_backward,
          .elements = elements,
          .in = {gradient, core.probabilities},
          .out = {gradient},
          .scratch = eager ? b.transient("attention.scores.masked.gradient", square.shape) : kNoSlot});
    if (!b.kernels().fused_softmax) {
        b.op({.kind = OpKind::multiply, .elements = elements, .in = {gradient}, .out = {gradient}});  // the scale
    }
    op = attention_op(view, OpKind::scores_backward);
    op.in = {gradient, core.qkv};
    op.out = {qkv_gradient};
    b.op(op, pairs);
}

void fused_forward(LayerBuilder& b, const View& view, double pairs, Operands in, Operands out) {
    Operator op = attention_op(view, OpKind::attention_forward);
    op.in = in;
    op.out = out;
    op.scratch = b.attention_scratch(view.queries, std::max(view.keys, view.stored_keys));
    op.reach = b.attended_length(view.keys);
    b.op(op, pairs);
}
void fused_backward(LayerBuilder& b, const View& view, double pairs, Operands in, Operands out) {
    Operator op = attention_op(view, OpKind::attention_backward);
    op.in = in;
    op.out = out;
    op.scratch = b.attention_scratch(view.queries, std::max(view.keys, view.stored_keys));
    op.reach = b.attended_length(view.keys);
    b.op(op, pairs);
}

/// This rank's keys and values, packed for sending.
SlotIndex pack_kv(LayerBuilder& b, const AttentionShape& shape, SlotIndex qkv, const std::string& name) {
    const SlotIndex own = b.transient(name, {b.rows(), shape.kv_width()});
    b.columns(OpKind::copy_columns, qkv, shape.q_width(), own, 0, shape.kv_width());
    return own;
}

/// Sends keys and values on to the next rank, and returns those received. Not in the last step of the ring.
SlotIndex pass_on(LayerBuilder& b, SlotIndex kv, std::int64_t step, const std::string& name) {
    if (step + 1 == b.context().cp_degree) return kNoSlot;
    const SlotIndex next = b.transient(name + "." + std::to_string(step), b.slot(kv).shape);
    b.boundary(Boundary::Kind::exchange, Boundary::Axis::cp, kv, next, b.slot(kv).elements());
    return next;
}

/// What this rank's queries see in a step of the ring.
View ring_view(LayerBuilder& b, const AttentionShape& shape, std::int64_t step) {
    return {.shape = shape,
            .rows = b.rows(),
            .queries = b.positions(),
            .keys = ring_keys(b, step),
            .part = KeyPart::ring,
            .ring_step = step,
            .stored_keys = b.positions()};
}

void ring_forward(LayerBuilder& b, AttentionCore& core) {
    const std::int64_t c = b.context().cp_degree;
    SlotIndex kv = pack_kv(b, core.shape, core.qkv, "attention.kv.own");
    for (std::int64_t step = 0; step < c; ++step) {
        const std::string suffix = "." + std::to_string(step);
        const SlotIndex next = pass_on(b, kv, step, "attention.kv.received");
        const View view = ring_view(b, core.shape, step);
        if (step == 0) {
            fused_forward(b, view, ring_pairs(b, step), {core.qkv}, {core.out, core.lse});
        } else {
            const SlotIndex out = b.transient("attention.out" + suffix, b.slot(core.out).shape);
            const SlotIndex lse = b.transient("attention.lse" + suffix, b.slot(core.lse).shape, DType::fp32);
            fused_forward(b, view, ring_pairs(b, step), {core.qkv, kv}, {out, lse});
            b.op({.kind = OpKind::attention_merge,
                  .rows = b.rows(),
                  .n = core.shape.out_width(),
                  .heads = core.shape.heads,
                  .in = {out, lse, core.out, core.lse},
                  .out = {core.out, core.lse}});
        }
        kv = next;
    }
}

// Keys and values travel again. Their gradients travel with them and accumulate each rank's part; one more step returns
// them to the owner.
void ring_backward(LayerBuilder& b, const AttentionCore& core, SlotIndex out_gradient, SlotIndex qkv_gradient) {
    const std::int64_t c = b.context().cp_degree;
    SlotIndex kv = pack_kv(b, core.shape, core.qkv, "attention.kv.own.again");
    SlotIndex travelling = kNoSlot;
    for (std::int64_t step = 0; step < c; ++step) {
        const std::string suffix = "." + std::to_string(step);
        const SlotIndex next = pass_on(b, kv, step, "attention.kv.received.again");
        const View view = ring_view(b, core.shape, step);
        const SlotIndex kv_gradient = b.transient("attention.kv.gradient" + suffix, b.slot(kv).shape);
        SlotIndex q_gradient = qkv_gradient;
        if (step > 0) q_gradient = b.transient("attention.q.gradient" + suffix, {b.rows(), core.shape.q_width()});
        fused_backward(b, view, ring_pairs(b, step),
                       {out_gradient, core.qkv, core.out, core.lse, step > 0 ? kv : kNoSlot},
                       {q_gradient, kv_gradient});
        if (travelling != kNoSlot) b.accumulate(travelling, kv_gradient);
        travelling = b.transient("attention.kv.gradient.received" + suffix, b.slot(kv_gradient).shape);
        b.boundary(Boundary::Kind::exchange, Boundary::Axis::cp, kv_gradient, travelling,
                   b.slot(kv_gradient).elements());
        if (step > 0) b.columns(OpKind::add_columns, q_gradient, 0, qkv_gradient, 0, core.shape.q_width());
        kv = next;
    }
    b.columns(OpKind::copy_columns, travelling, 0, qkv_gradient, core.shape.q_width(), core.shape.kv_width());
}

SlotIndex gathered_kv(LayerBuilder& b, const AttentionShape& shape, SlotIndex qkv, const std::string& again) {
    const SlotIndex own = pack_kv(b, shape, qkv, "attention.kv.own" + again);
    const std::int64_t all = b.rows() * b.context().cp_degree;
    const SlotIndex whole = b.transient("attention.kv.full" + again, {all, shape.kv_width()});
    b.boundary(Boundary::Kind::gather, Boundary::Axis::cp, own, whole, all * shape.kv_width());
    return whole;
}

/// This rank's queries over all keys; the chunks are those of the ring, which balances causal work.
View gathered_view(const LayerBuilder& b, const AttentionShape& shape) {
    return {.shape = shape,
            .rows = b.rows(),
            .queries = b.positions(),
            .keys = b.context().sequence,
            .part = KeyPart::gathered};
}
double gathered_pairs(const LayerBuilder& b) {
    return b.attended_pairs(b.context().sequence) / static_cast<double>(b.context().cp_degree);
}

/// This rank's share of the heads, over the whole sequence.
View ulysses_view(const LayerBuilder& b, AttentionShape shape) {
    const std::int64_t c = b.context().cp_degree;
    shape.kv_heads = exchanged_kv_heads(b, shape) / c;
    shape.heads /= c;
    return {.shape = shape, .rows = b.rows() * c, .queries = b.context().sequence, .keys = b.context().sequence};
}
View own_view(const LayerBuilder& b, const AttentionShape& shape) {
    return {.shape = shape, .rows = b.rows(), .queries = b.positions(), .keys = b.positions()};
}

/// A layout change before or after the all-to-all. `share`: the heads of one rank; `packed`: rows hold q, k and v,
/// otherwise only o.
void change_layout(LayerBuilder& b, OpKind kind, const AttentionShape& share, std::int64_t rows, SlotIndex in,
                   SlotIndex out, bool packed) {
    b.op({.kind = kind,
          .rows = rows,
          .heads = share.heads,
          .kv_heads = packed ? share.kv_heads : 0,
          .head_dim = packed ? share.head_dim : 0,
          .value_dim = share.value_dim,
          .in = {in},
          .out = {out}});
}

/// From all heads of this rank's tokens to this rank's heads of all tokens.
void to_heads(LayerBuilder& b, const AttentionShape& share, SlotIndex in, SlotIndex out, bool packed) {
    const std::string name = b.slot(out).name;
    const SlotIndex sent = b.transient(name + ".sent", b.slot(in).shape);
    const SlotIndex received = b.transient(name + ".received", b.slot(out).shape);
    change_layout(b, OpKind::cut_heads, share, b.rows(), in, sent, packed);
    b.boundary(Boundary::Kind::all_to_all, Boundary::Axis::cp, sent, received, b.slot(sent).elements());
    change_layout(b, OpKind::join_sequence, share, b.rows() * b.context().cp_degree, received, out, packed);
}

/// The inverse of to_heads.
void to_sequence(LayerBuilder& b, const AttentionShape& share, SlotIndex in, SlotIndex out, bool packed) {
    const std::string name = b.slot(out).name;
    const SlotIndex sent = b.transient(name + ".sent", b.slot(in).shape);
    const SlotIndex received = b.transient(name + ".received", b.slot(out).shape);
    change_layout(b, OpKind::cut_sequence, share, b.rows() * b.context().cp_degree, in, sent, packed);
    b.boundary(Boundary::Kind::all_to_all, Boundary::Axis::cp, sent, received, b.slot(sent).elements());
    change_layout(b, OpKind::join_heads, share, b.rows(), received, out, packed);
}

/// Repeats each key/value head of `shape`, or sums the gradients of the copies.
void repeat(LayerBuilder& b, OpKind kind, const AttentionShape& shape, std::int64_t copies, SlotIndex in,
            SlotIndex out) {
    b.op({.kind = kind,
          .rows = b.rows(),
          .heads = shape.heads,
          .kv_heads = shape.kv_heads,
          .head_dim = shape.head_dim,
          .value_dim = shape.value_dim,
          .copies = copies,
          .in = {in},
          .out = {out}});
}

/// Repeats key/value heads before the exchange until there is one for each rank.
SlotIndex expand_kv(LayerBuilder& b, const AttentionShape& shape, SlotIndex qkv) {
    const std::int64_t kv_heads = exchanged_kv_heads(b, shape);
    if (kv_heads == shape.kv_heads) return qkv;
    const std::int64_t width = shape.q_width() + kv_heads * (shape.head_dim + shape.value_dim);
    const SlotIndex expanded = b.transient("attention.qkv.expanded", {b.rows(), width});
    repeat(b, OpKind::repeat_heads, shape, kv_heads / shape.kv_heads, qkv, expanded);
    return expanded;
}

}  // namespace

SlotIndex attention_input(LayerBuilder& b, const AttentionShape& shape) {
    const std::vector<std::int64_t> extents{b.rows(), shape.q_width() + shape.kv_width()};
    const bool kept = !is_ulysses(b) && !repeats_heads(b, shape);
    return kept ? b.saved("attention.qkv", extents) : b.transient("attention.qkv", extents);
}

AttentionCore attention_core_forward(LayerBuilder& b, const AttentionShape& shape, SlotIndex qkv, bool fp8_output) {
    AttentionCore core{.shape = shape, .projected_kv_heads = shape.kv_heads, .qkv = qkv};
    const std::int64_t c = b.context().cp_degree;
    const bool fused = b.kernels().fused_attention;
    View view = own_view(b, shape);
    b.part(BlockPart::attention_projection);
    if (repeats_heads(b, shape)) {
        core.shape.kv_heads = shape.heads;
        const std::int64_t width = core.shape.q_width() + core.shape.kv_width();
        core.qkv = b.saved("attention.qkv.repeated", {b.rows(), width});
        repeat(b, OpKind::repeat_heads, shape, shape.heads / shape.kv_heads, qkv, core.qkv);
        view = own_view(b, core.shape);
    } else if (is_ulysses(b)) {
        view = ulysses_view(b, shape);
        const SlotIndex own = expand_kv(b, shape, qkv);
        core.qkv = b.saved("attention.qkv.heads", {view.rows, view.shape.q_width() + view.shape.kv_width()});
        to_heads(b, view.shape, own, core.qkv, true);
    }
    b.part(BlockPart::attention_core);
    const std::vector<std::int64_t> extents{view.rows, view.shape.out_width()};
    // The fused backward pass reads o; without fusion only the output product does.
    if (is_ulysses(b)) {
        core.local_out = fused ? b.saved("attention.out.heads", extents) : b.transient("attention.out.heads", extents);
        core.out = b.product_input("attention.out", {b.rows(), shape.out_width()}, fp8_output);
    } else {
        core.out = fused ? b.saved("attention.out", extents) : b.product_input("attention.out", extents, fp8_output);
        core.local_out = core.out;
    }
    if (!fused) {
        unfused_forward(b, view, core, core.qkv, core.local_out);
    } else {
        core.lse = b.saved("attention.lse", {view.shape.heads, view.rows}, DType::fp32);
        if (c == 1 || is_ulysses(b)) {
            fused_forward(b, view, b.attended_pairs(view.keys), {core.qkv}, {core.local_out, core.lse});
        } else if (b.context().context_parallel == ContextParallel::ring) {
            ring_forward(b, core);
        } else {
            const SlotIndex kv = gathered_kv(b, shape, core.qkv, "");
            fused_forward(b, gathered_view(b, shape), gathered_pairs(b), {core.qkv, kv}, {core.out, core.lse});
        }
    }
    if (is_ulysses(b)) to_sequence(b, view.shape, core.local_out, core.out, false);
    return core;
}

SlotIndex attention_core_backward(LayerBuilder& b, const AttentionCore& core, SlotIndex out_gradient) {
    const std::int64_t c = b.context().cp_degree;
    const AttentionShape& shape = core.shape;
    b.part(BlockPart::attention_core);
    View view = own_view(b, shape);
    if (is_ulysses(b)) {
        view = ulysses_view(b, shape);
        const SlotIndex heads = b.transient("attention.out.heads.gradient", b.slot(core.local_out).shape);
        to_heads(b, view.shape, out_gradient, heads, false);
        out_gradient = heads;
    }
    const std::string name = is_ulysses(b) ? "attention.qkv.heads.gradient" : "attention.qkv.gradient";
    SlotIndex gradient = b.transient(name, b.slot(core.qkv).shape);
    if (!b.kernels().fused_attention) {
        unfused_backward(b, view, core, out_gradient, gradient);
    } else if (c == 1 || is_ulysses(b)) {
        fused_backward(b, view, b.attended_pairs(view.keys), {out_gradient, core.qkv, core.local_out, core.lse},
                       {gradient});
    } else if (b.context().context_parallel == ContextParallel::ring) {
        ring_backward(b, core, out_gradient, gradient);
    } else {
        const SlotIndex kv = gathered_kv(b, shape, core.qkv, ".again");
        const SlotIndex kv_gradient = b.transient("attention.kv.full.gradient", b.slot(kv).shape);
        fused_backward(b, gathered_view(b, shape), gathered_pairs(b), {out_gradient, core.qkv, core.out, core.lse, kv},
                       {gradient, kv_gradient});
        const SlotIndex own = b.transient("attention.kv.gradient", {b.rows(), shape.kv_width()});
        b.boundary(Boundary::Kind::reduce_scatter, Boundary::Axis::cp, kv_gradient, own,
                   b.slot(kv_gradient).elements());
        b.columns(OpKind::copy_columns, own, 0, gradient, shape.q_width(), shape.kv_width());
    }
    b.part(BlockPart::attention_projection);
    AttentionShape before = shape;
    before.kv_heads = core.projected_kv_heads;
    if (is_ulysses(b)) {
        const std::int64_t sent = shape.q_width() + exchanged_kv_heads(b, shape) * (shape.head_dim + shape.value_dim);
        const SlotIndex back = b.transient("attention.qkv.gradient", {b.rows(), sent});
        to_sequence(b, view.shape, gradient, back, true);
        gradient = back;
    }
    const std::int64_t width = before.q_width() + before.kv_width();
    if (b.slot(gradient).shape.back() > width) {  // sum over the copies of each key/value head
        const SlotIndex summed = b.transient("attention.qkv.summed.gradient", {b.rows(), width});
        const std::int64_t repeated = is_ulysses(b) ? exchanged_kv_heads(b, shape) : shape.kv_heads;
        repeat(b, OpKind::sum_repeated_heads, before, repeated / before.kv_heads, gradient, summed);
        gradient = summed;
    }
    return gradient;
}

}  // namespace orrery::models
