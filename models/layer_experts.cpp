// A layer of experts: router, dispatch, grouped products, combination, and shared experts.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/units.h"
#include "models/layer_parts.h"

namespace orrery::models {
namespace {

std::int64_t scaled(std::int64_t rows, double factor) {
    return static_cast<std::int64_t>(std::llround(std::ceil(static_cast<double>(rows) * factor - 1e-9)));
}

/// Computes how many (token, expert) rows a rank sends, receives and computes.
void count_rows(const LayerBuilder& b, Experts& e) {
    const LayerContext& context = b.context();
    const ExpertLoad& load = context.expert_load;
    const std::int64_t chosen = checked_product(b.token_rows(), b.model().moe.top_k);
    // Padded to capacity, a rank sends the full capacity of every expert. Otherwise dropped rows are not sent; with
    // even counts none are dropped unless the capacity factor is below 1.
    const double sent = load.capacity_factor <= 0 ? 1.0
                        : load.pads_to_capacity   ? load.capacity_factor
                                                  : std::min(1.0, load.capacity_factor);
    e.sent_rows = scaled(chosen, sent);
    if (context.ep_degree == 1) {  // all experts are local, so an uneven choice does not change the number of rows
        e.received_rows = e.sent_rows;
    } else {
        e.received_rows = scaled(chosen, load.expected());
        // At most, all ranks of the group send all of their rows here.
        const double bound = std::min(load.bound(), static_cast<double>(context.ep_degree) * std::max(1.0, sent));
        e.most_received = std::max(scaled(chosen, bound), e.received_rows);
        if (e.most_received == e.received_rows) e.most_received = 0;
    }
    e.rows = checked_product(e.received_rows, context.etp_degree);
    e.most_rows = checked_product(e.most_received, context.etp_degree);
}

enum class Direction { to_experts, from_experts };

/// All-to-all over the expert-parallel ranks; its size is that of the rank that receives most.
void all_to_all(LayerBuilder& b, const Experts& e, SlotIndex in, SlotIndex out, Direction direction) {
    const std::int64_t h = b.model().hidden;
    Boundary& boundary = b.boundary(Boundary::Kind::all_to_all, Boundary::Axis::ep, in, out, e.received_rows * h);
    if (b.context().implementation.experts.sends_tokens_once) boundary.tokens_once = routing_of(b.model().moe);
    if (e.received.counts == kNoSlot) return;
    const bool to_experts = direction == Direction::to_experts;
    boundary.send_counts = to_experts ? e.sent_counts : e.arrived_counts;
    boundary.receive_counts = to_experts ? e.arrived_counts : e.sent_counts;
    boundary.row_elements = h;
}

/// kNoSlot if every expert gets its full capacity. Saved for the backward pass unless all ranks' counts are gathered.
SlotIndex sent_counts(LayerBuilder& b) {
    const LayerContext& context = b.context();
    if (context.expert_load.pads_to_capacity) return kNoSlot;
    const std::string name = "experts.counts.sent";
    const std::vector<std::int64_t> shape{b.model().moe.expert_count};
    return context.ep_degree == 1 && context.etp_degree > 1 ? b.transient(name, shape, DType::int64)
                                                            : b.saved(name, shape, DType::int64);
}

/// A gather or reduce-scatter over the expert-tensor-parallel ranks, which all compute the rows received by any of
/// them. With expert parallelism too, the ranks' numbers of rows differ.
void exchange_over_etp(LayerBuilder& b, const Experts& e, Boundary::Kind kind, SlotIndex in, SlotIndex out) {
    const std::int64_t h = b.model().hidden;
    Boundary& boundary = b.boundary(kind, Boundary::Axis::etp, in, out, e.rows * h);
    if (b.context().ep_degree == 1 || e.received.counts == kNoSlot) return;
    boundary.send_counts = boundary.receive_counts = e.received.counts;
    boundary.row_elements = h;
}

/// Each rank sends the ranks with the experts the number of rows that will follow.
void exchange_counts(LayerBuilder& b, Experts& e, std::int64_t local) {
    const LayerContext& context = b.context();
    const std::int64_t ep = context.ep_degree, etp = context.etp_degree, all = ep * local;
    e.received = {.counts = kNoSlot, .sources = ep * etp, .groups = local};
    if (e.sent_counts == kNoSlot) return;
    e.arrived_counts = e.sent_counts;
    if (ep > 1) {
        e.arrived_counts = b.saved("experts.counts.arrived", {ep, local}, DType::int64);
        b.boundary(Boundary::Kind::all_to_all, Boundary::Axis::ep, e.sent_counts, e.arrived_counts, all);
    }
    e.received.counts = e.arrived_counts;
    if (etp > 1) {
        e.received.counts = b.saved("experts.counts", {etp * ep, local}, DType::int64);
        b.boundary(Boundary::Kind::gather, Boundary::Axis::etp, e.arrived_counts, e.received.counts, etp * all);
    }
}

/// Reorders rows from the order of source ranks to that of the local experts, or back.
void regroup(LayerBuilder& b, const Experts& e, OpKind kind, SlotIndex in, SlotIndex out) {
    b.op({.kind = kind,
          .rows = e.rows,
          .k = b.model().hidden,
          .groups = e.received.groups,
          .sources = e.received.sources,
          .in = {in, e.received.counts},
          .out = {out}});
}
bool is_regrouped(const Experts& e) {
    return e.received.sources > 1 && e.received.groups > 1;
}

SlotIndex rows_slot(LayerBuilder& b, const std::string& name, std::int64_t rows, std::int64_t most) {
    return b.transient(name, {rows, b.model().hidden}, b.context().activation_dtype, most);
}

/// From rows in the order of sending to rows in the order of the local experts.
void dispatch(LayerBuilder& b, const Experts& e, SlotIndex rows, const std::string& name, SlotIndex target) {
    const bool spread = b.context().ep_degree > 1, cut = b.context().etp_degree > 1;
    const SlotIndex arrived = is_regrouped(e) ? rows_slot(b, name + ".arrived", e.rows, e.most_rows) : target;
    SlotIndex at = rows;
    if (spread) {
        const SlotIndex received = cut ? rows_slot(b, name + ".received", e.received_rows, e.most_received) : arrived;
        all_to_all(b, e, at, received, Direction::to_experts);
        at = received;
    }
    if (cut) exchange_over_etp(b, e, Boundary::Kind::gather, at, arrived);
    if (arrived != target) regroup(b, e, OpKind::group_by_expert, arrived, target);
}

/// The inverse of dispatch: sums over the expert-tensor-parallel ranks and returns each row to its sender.
void collect(LayerBuilder& b, const Experts& e, SlotIndex rows, const std::string& name, SlotIndex target) {
    const bool spread = b.context().ep_degree > 1, cut = b.context().etp_degree > 1;
    SlotIndex at = rows;
    if (is_regrouped(e)) {
        at = rows_slot(b, name + ".leaving", e.rows, e.most_rows);
        regroup(b, e, OpKind::group_by_source, rows, at);
    }
    if (cut) {
        const SlotIndex own = spread ? rows_slot(b, name + ".share", e.received_rows, e.most_received) : target;
        exchange_over_etp(b, e, Boundary::Kind::reduce_scatter, at, own);
        at = own;
    }
    if (spread) all_to_all(b, e, at, target, Direction::from_experts);
}
bool travels(const LayerBuilder& b) {
    return b.context().ep_degree > 1 || b.context().etp_degree > 1;
}

void shared_forward(LayerBuilder& b, Experts& e, const std::string& norm_name) {
    const ModelSpec& model = b.model();
    const std::int64_t tokens = b.token_rows();
    constexpr BlockPart kPart = BlockPart::shared_expert;
    e.has_shared = true;
    const ColumnInput input = b.column_input(e.normed, norm_name, model.hidden, b.fp8(), kPart);
    e.shared = mlp_forward(b,
                           {.prefix = "shared",
                            .ffn_hidden = model.moe.shared_ffn_hidden,
                            .bias = false,
                            .in = kPart,
                            .middle = kPart,
                            .out = kPart},
                           input);
    const SlotIndex out = b.row_forward(e.shared.fc2, e.shared.activated.row, "shared.projected");
    e.shared_out = out;
    if (!model.moe.shared_expert_gate) return;
    // The gate is a sigmoid of one number for each token.
    e.shared_gate = b.product("shared.scale", b.replicated_weight("shared.scale.weight", 1, model.hidden, true),
                              kNoSlot, 1, model.hidden, kPart, false);
    e.shared_scale = b.saved("shared.scale", {tokens, 1});
    b.product_forward(e.shared_gate, e.normed, e.shared_scale);
    const SlotIndex kept = b.saved("shared.out", {tokens, model.hidden});
    b.copy(out, kept, tokens * model.hidden);
    e.shared_out = b.transient("shared.scaled", {tokens, model.hidden});
    e.shared_kept = kept;
    b.op({.kind = OpKind::gate_rows_forward,
          .sequence_sharded = b.sharded(),
          .rows = tokens,
          .k = model.hidden,
          .in = {kept, e.shared_scale},
          .out = {e.shared_out}});
}

/// Passes the gradient of the shared experts' input to `then`.
void shared_backward(LayerBuilder& b, const Experts& e, SlotIndex gradient,
                     const std::function<void(SlotIndex)>& then) {
    const std::int64_t tokens = b.token_rows(), h = b.model().hidden;
    b.part(BlockPart::shared_expert);
    SlotIndex scale_gradient = kNoSlot;
    if (e.shared_scale != kNoSlot) {
        const SlotIndex unscaled = b.transient("shared.out.gradient", {tokens, h});
        scale_gradient = b.transient("shared.scale.gradient", {tokens, 1});
        b.op({.kind = OpKind::gate_rows_backward,
              .sequence_sharded = b.sharded(),
              .rows = tokens,
              .k = h,
              .in = {gradient, e.shared_kept, e.shared_scale},
              .out = {unscaled, scale_gradient}});
        gradient = unscaled;
    }
    BranchGradient branch = b.branch_gradient(gradient, kNoSlot, {}, "shared.projected.gradient", b.fp8());
    const std::vector<LayerBuilder::ColumnGradient> fc1 = mlp_backward(b, e.shared, branch);
    b.column_backward(e.shared.input, fc1, [&](SlotIndex result) {
        b.part(BlockPart::shared_expert);
        if (scale_gradient != kNoSlot) {
            const SlotIndex from_scale = b.transient("shared.scale.in.gradient", {tokens, h});
            b.product_backward_input(e.shared_gate, scale_gradient, from_scale);
            b.product_backward_weight(e.shared_gate, scale_gradient, e.normed, tokens);
            b.accumulate(from_scale, result);
        }
        then(result);
    });
}

void route_forward(LayerBuilder& b, Experts& e) {
    const MixtureOfExperts& moe = b.model().moe;
    const std::int64_t tokens = b.token_rows(), h = b.model().hidden;
    b.part(BlockPart::router);
    e.router = b.product("router", b.replicated_weight("router.weight", moe.expert_count, h, true), kNoSlot,
                         moe.expert_count, h, BlockPart::router, false);
    const SlotIndex logits = moe.router_keeps_logits()
                                 ? b.saved("router.logits", {tokens, moe.expert_count}, DType::fp32)
                                 : b.transient("router.logits", {tokens, moe.expert_count}, DType::fp32);
    if (moe.router_keeps_logits()) e.logits = logits;
    b.product_forward(e.router, e.normed, logits);
    e.probabilities = b.saved("router.probabilities", {tokens, moe.top_k}, DType::fp32);
    e.choices = b.saved("router.experts", {tokens, moe.top_k}, DType::int32);
    b.op({.kind = OpKind::router_forward,
          .sequence_sharded = b.sharded(),
          .rows = tokens,
          .n = moe.expert_count,
          .in = {logits},
          .out = {e.probabilities, e.choices}});
}

}  // namespace

Experts experts_forward(LayerBuilder& b, SlotIndex normed, const std::string& norm_name, SlotIndex& result) {
    const ModelSpec& model = b.model();
    const MixtureOfExperts& moe = model.moe;
    const LayerContext& context = b.context();
    const std::int64_t tokens = b.token_rows(), h = model.hidden;
    const std::int64_t count = moe.expert_count / context.ep_degree;
    const std::int64_t f = moe.expert_ffn_hidden / context.etp_degree;
    const bool gated = model.mlp == MlpKind::swiglu, fp8 = b.fp8();
    const std::int64_t in_width = gated ? 2 * f : f;
    const DType dtype = context.activation_dtype;
    Experts e{.normed = normed};
    count_rows(b, e);
    if (moe.shared_ffn_hidden > 0) shared_forward(b, e, norm_name);
    route_forward(b, e);

    b.part(BlockPart::experts);
    const std::int64_t most = e.most_rows;
    const SlotIndex in = b.product_input("experts.in", {e.rows, h}, fp8, most);
    const SlotIndex permuted = travels(b) ? rows_slot(b, "experts.sent", e.sent_rows, 0) : in;
    e.places = b.saved("experts.places", {tokens, moe.top_k}, DType::int32);
    e.sent_counts = sent_counts(b);
    b.op({.kind = OpKind::permute_forward,
          .sequence_sharded = b.sharded(),
          .rows = e.sent_rows,
          .n = moe.expert_count,
          .k = h,
          .in = {normed, e.choices},
          .out = {permuted, e.places, e.sent_counts}});
    exchange_counts(b, e, count);
    dispatch(b, e, permuted, "experts.sent", in);
    e.in = b.cast_for_products("experts.in", in, fp8, true);

    const std::int64_t all = moe.expert_count * moe.expert_ffn_hidden;
    std::vector<ParameterPart> parts;
    for (const char* part :
         gated ? std::vector<const char*>{"experts.gate", "experts.up"} : std::vector<const char*>{"experts.fc1"}) {
        parts.push_back({std::string(part) + ".weight", all, h, count * f, h});
    }
    e.fc1 = b.product("experts.fc1", b.expert_weight("experts.fc1.weight", parts, count, in_width, h, ShardDim::rows),
                      kNoSlot, in_width, h, BlockPart::experts, fp8, count);
    e.fc1.experts = e.received;
    const SlotIndex fc1_out = b.saved("experts.fc1.out", {e.rows, in_width}, dtype, most);
    b.product_forward(e.fc1, e.in.row, fc1_out);
    e.activation = activation_forward(b, "experts.activated", fc1_out, e.rows, f, fp8, most, e.received);
    e.activated = b.cast_for_products("experts.activated", e.activation.out, fp8, true);
    const std::string down = gated ? "experts.down" : "experts.fc2";
    e.fc2 = b.product(down,
                      b.expert_weight(down + ".weight",
                                      {{down + ".weight", moe.expert_count * h, moe.expert_ffn_hidden, count * h, f}},
                                      count, h, f, ShardDim::cols),
                      kNoSlot, h, f, BlockPart::experts, fp8, count);
    e.fc2.experts = e.received;
    const bool away = travels(b);
    e.returned = b.saved("experts.returned", {e.sent_rows, h});
    const SlotIndex out = away ? rows_slot(b, "experts.out", e.rows, most) : e.returned;
    b.product_forward(e.fc2, e.activated.row, out);
    collect(b, e, out, "experts.out", e.returned);
    result = b.transient("experts.combined", {tokens, h});
    b.op({.kind = OpKind::combine_forward,
          .sequence_sharded = b.sharded(),
          .rows = e.sent_rows,
          .k = h,
          .in = {e.returned, e.probabilities, e.places},
          .out = {result}});
    b.part(BlockPart::residual);
    if (e.has_shared) b.accumulate(e.shared_out, result);
    return e;
}

void experts_backward(LayerBuilder& b, const Experts& e, SlotIndex gradient,
                      const std::function<void(SlotIndex)>& then) {
    const ModelSpec& model = b.model();
    const MixtureOfExperts& moe = model.moe;
    const std::int64_t tokens = b.token_rows(), h = model.hidden;
    const bool fp8 = b.fp8(), away = travels(b);
    b.part(BlockPart::experts);
    const SlotIndex returned = rows_slot(b, "experts.returned.gradient", e.sent_rows, 0);
    const SlotIndex probabilities = b.transient("router.probabilities.gradient", {tokens, moe.top_k}, DType::fp32);
    b.op({.kind = OpKind::combine_backward,
          .sequence_sharded = b.sharded(),
          .rows = e.sent_rows,
          .k = h,
          .in = {gradient, e.returned, e.probabilities, e.places},
          .out = {returned, probabilities}});
    SlotIndex out = returned;
    if (away) {
        out = rows_slot(b, "experts.out.gradient", e.rows, e.most_rows);
        dispatch(b, e, returned, "experts.returned.gradient", out);
    }
    const DType dtype = b.context().activation_dtype;
    const Operand out_operand = b.cast_for_products("experts.out.gradient", out, fp8, false);
    const SlotIndex activated = b.transient("experts.activated.gradient", {e.rows, e.fc2.k}, dtype, e.most_rows);
    b.product_backward_input(e.fc2, out_operand.row, activated);
    b.product_backward_weight(e.fc2, out_operand.column, e.activated.column, e.rows);
    const SlotIndex fc1_out = activation_backward(b, e.activation, activated, "experts.fc1.out");
    const Operand fc1_operand = b.cast_for_products("experts.fc1.out.gradient", fc1_out, fp8, false);
    const SlotIndex in = rows_slot(b, "experts.in.gradient", e.rows, e.most_rows);
    b.product_backward_input(e.fc1, fc1_operand.row, in);
    SlotIndex sent = in;
    if (away) {
        sent = rows_slot(b, "experts.sent.gradient", e.sent_rows, 0);
        collect(b, e, in, "experts.in.gradient", sent);
    }
    b.product_backward_weight(e.fc1, fc1_operand.column, e.in.column, e.rows);  // overlaps with the all-to-all
    const SlotIndex normed = b.transient("experts.norm.out.gradient", {tokens, h});
    b.op({.kind = OpKind::permute_backward,
          .sequence_sharded = b.sharded(),
          .rows = e.sent_rows,
          .k = h,
          .in = {sent, e.places},
          .out = {normed}});

    b.part(BlockPart::router);
    const SlotIndex logits = b.transient("router.logits.gradient", {tokens, moe.expert_count}, DType::fp32);
    b.op({.kind = OpKind::router_backward,
          .sequence_sharded = b.sharded(),
          .rows = tokens,
          .n = moe.expert_count,
          .in = {probabilities, e.probabilities, e.choices, e.logits},
          .out = {logits}});
    const SlotIndex from_router = b.transient("router.in.gradient", {tokens, h});
    b.product_backward_input(e.router, logits, from_router);
    b.product_backward_weight(e.router, logits, e.normed, tokens);
    b.accumulate(from_router, normed);
    if (!e.has_shared) {
        then(normed);
        return;
    }
    shared_backward(b, e, gradient, [&](SlotIndex from_shared) {
        b.part(BlockPart::shared_expert);
        b.accumulate(from_shared, normed);
        then(normed);
    });
}

}  // namespace orrery::models
