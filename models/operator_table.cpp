#include "models/operator_table.h"

#include <algorithm>

#include "core/error.h"

namespace orrery::models {
namespace {

double real(std::int64_t value) {
    return static_cast<double>(value);
}

// FLOPs. Those of vector operators are counted per element from their formulas (an exponential counts as 10).

template <int kFlops>
double per_input(const Operator& op, const FlopContext&) {  // rows that are k wide
    return kFlops * real(op.rows) * real(op.k);
}
template <int kFlops>
double per_output(const Operator& op, const FlopContext&) {  // rows that are n wide
    return kFlops * real(op.rows) * real(op.n);
}
template <int kFlops>
double per_element(const Operator& op, const FlopContext&) {  // flat operands, or rows that are n wide
    return kFlops * (op.elements > 0 ? real(op.elements) : real(op.rows) * real(op.n));
}
/// Width of q and k together.
double head_width(const Operator& op) {
    return real((op.heads + op.kv_heads) * op.head_dim);
}
template <int kFlops>
double per_head_element(const Operator& op, const FlopContext&) {
    return kFlops * real(op.rows) * head_width(op);
}
double rotation(const Operator& op, const FlopContext& context) {
    constexpr double kFlops = 3;
    return kFlops * real(op.rows) * (op.n > 0 ? real(op.n) : head_width(op) * context.rotary_fraction);
}
/// Products over the pairs of all heads and sequences. In latent attention, scores and context have different widths.
template <int kScores, int kContext>
double attention(const Operator& op, const FlopContext& context) {
    const double all_pairs = context.pairs * real(op.micro_batch * op.heads);
    const double scores = 2 * all_pairs * real(op.head_dim);
    const double values = 2 * all_pairs * real(op.value_dim > 0 ? op.value_dim : op.head_dim);
    return kScores * scores + kContext * values;
}
double norm_flops(const Operator& op, const FlopContext& context) {
    return per_input<8>(op, context) + (op.is_fused() ? per_input<2>(op, context) : 0);
}
double product_flops(const Operator& op, const FlopContext&) {  // rows are those of all groups together
    return 2 * real(op.rows) * real(op.n) * real(op.k);
}
double sums_of_heads(const Operator& op, const FlopContext&) {
    return real(op.rows) * real(op.kv_heads * op.copies * (op.head_dim + op.value_dim));
}
constexpr int kExponential = 12;  // an exponential, and the subtraction before and the sum after it
double losses(const Operator& op, const FlopContext&) {
    return kExponential * real(op.rows) * real(std::max<std::int64_t>(1, op.sources));
}

// Memory traffic of operators that do not read and write whole operands.

double width(const Slots& slots, SlotIndex index) {
    return index == kNoSlot ? 0.0 : real(size_of(slots[index].dtype));
}
Traffic whole_operands(const Operator& op, const Slots& slots) {
    Traffic traffic;
    for (const SlotIndex index : op.in) traffic.read += slot_bytes(slots, index);
    for (const SlotIndex index : op.out) {
        traffic.written += slot_bytes(slots, index);
        const bool adds = index != kNoSlot && slots[index].role == SlotRole::gradient;
        if (adds) traffic.read += slot_bytes(slots, index);
    }
    return traffic;
}
// Products use their own dimensions, since they may write only a part of a slot.
double weight_elements(const Operator& op) {
    return real(op.n) * real(op.k) * real(std::max<std::int64_t>(op.groups, 1));
}
Traffic product_forward(const Operator& op, const Slots& slots) {
    const double rows = real(op.rows);
    return {rows * real(op.k) * width(slots, op.in[0]) + weight_elements(op) * width(slots, op.in[1]) +
                slot_bytes(slots, op.in[2]),
            rows * real(op.n) * (width(slots, op.out[0]) + width(slots, op.out[1]))};
}
Traffic product_backward_input(const Operator& op, const Slots& slots) {
    const double rows = real(op.rows);
    return {rows * real(op.n) * width(slots, op.in[0]) + weight_elements(op) * width(slots, op.in[1]),
            rows * real(op.k) * width(slots, op.out[0])};
}
Traffic product_backward_weight(const Operator& op, const Slots& slots) {
    const double rows = real(op.rows);
    // Gradients accumulate: they are read before they are written.
    const bool accumulates = slots[op.out[0]].role == SlotRole::gradient;
    const double written = weight_elements(op) * width(slots, op.out[0]);
    return {rows * real(op.n) * width(slots, op.in[0]) + rows * real(op.k) * width(slots, op.in[1]) +
                (accumulates ? written : 0) + slot_bytes(slots, op.out[1]),
            written + slot_bytes(slots, op.out[1])};
}
template <bool kAdds>
Traffic columns(const Operator& op, const Slots& slots) {
    const double moved = real(op.rows) * real(op.n);
    const double written = moved * width(slots, op.out[0]);
    return {moved * width(slots, op.in[0]) + (kAdds ? written : 0), written};
}
Traffic accumulation(const Operator& op, const Slots& slots) {
    const double written = real(op.elements) * width(slots, op.out[0]);
    return {real(op.elements) * width(slots, op.in[0]) + written, written};
}
// Of an embedding table, only the rows that are looked up are read or written.
constexpr double kTokenBytes = 4;
double rows_of(const Operator& op, const Slots& slots, SlotIndex like) {
    return real(op.rows) * (real(op.k) * width(slots, like));
}
Traffic lookup(const Operator& op, const Slots& slots) {
    Traffic traffic = whole_operands(op, slots);
    traffic.read = real(op.rows) * kTokenBytes + rows_of(op, slots, op.out[0]);
    return traffic;
}
Traffic lookup_backward(const Operator& op, const Slots& slots) {
    const double written = rows_of(op, slots, op.out[0]);
    return {real(op.rows) * kTokenBytes + (rows_of(op, slots, op.in[0]) + written), written};
}
Traffic position_lookup(const Operator& op, const Slots& slots) {
    const double rows = rows_of(op, slots, op.out[0]);
    return {2 * rows, rows};
}
Traffic position_lookup_backward(const Operator& op, const Slots& slots) {
    const double written = rows_of(op, slots, op.out[0]);
    return {rows_of(op, slots, op.in[0]) + written, written};
}
Traffic correction(const Operator& op, const Slots& slots) {  // reads only the targets' rows of the weight
    Traffic traffic = whole_operands(op, slots);
    traffic.read += rows_of(op, slots, op.out[0]) - slot_bytes(slots, op.in[4]);
    return traffic;
}

// Gradients.

std::int64_t matrix(const Operator& op) {
    return op.n * op.k;
}
std::int64_t expert_matrices(const Operator& op) {
    return op.groups * op.n * op.k;
}
std::int64_t input_vector(const Operator& op) {
    return op.k;
}
std::int64_t output_vector(const Operator& op) {
    return op.n;
}
std::int64_t head_vector(const Operator& op) {
    return op.head_dim;
}

// Matrix products.

ProductShapes linear(const Operator& op) {
    return ProductShapes({op.whole_rows(), op.n, op.k, 1});
}
ProductShapes linear_input(const Operator& op) {
    return ProductShapes({op.whole_rows(), op.k, op.n, 1});
}
ProductShapes linear_weight(const Operator& op) {
    return ProductShapes({op.n, op.k, op.whole_rows(), 1});
}
std::int64_t groups_of(const Operator& op) {
    return std::max<std::int64_t>(op.groups, 1);
}
std::int64_t rows_of_group(const Operator& op) {
    return (op.rows + groups_of(op) - 1) / groups_of(op);
}
ProductShapes experts(const Operator& op) {
    return ProductShapes({rows_of_group(op), op.n, op.k, groups_of(op)});
}
ProductShapes experts_input(const Operator& op) {
    return ProductShapes({rows_of_group(op), op.k, op.n, groups_of(op)});
}
ProductShapes experts_weight(const Operator& op) {
    return ProductShapes({op.n, op.k, rows_of_group(op), groups_of(op)});
}
struct AttentionDims {
    explicit AttentionDims(const Operator& op)
        : queries(op.queries > 0 ? op.queries : op.sequence),
          keys(op.sequence),
          values(op.value_dim > 0 ? op.value_dim : op.head_dim),
          heads(op.micro_batch * op.heads) {}
    std::int64_t queries, keys, values, heads;
};
ProductShapes scores(const Operator& op) {
    const AttentionDims d(op);
    return ProductShapes({d.queries, d.keys, op.head_dim, d.heads});
}
ProductShapes scores_gradient(const Operator& op) {
    const AttentionDims d(op);
    return {{d.queries, op.head_dim, d.keys, d.heads}, {d.keys, op.head_dim, d.queries, d.heads}};
}
ProductShapes context(const Operator& op) {
    const AttentionDims d(op);
    return ProductShapes({d.queries, d.values, d.keys, d.heads});
}
ProductShapes context_gradient(const Operator& op) {
    const AttentionDims d(op);
    return {{d.queries, d.keys, d.values, d.heads}, {d.keys, d.values, d.queries, d.heads}};
}

using enum OpKind;
using enum Kernels;
using Work = WorkClass;

/// Builds a row of the table from its optional columns.
struct Row : OperatorRow {
    constexpr Row(OpKind own_kind, std::string_view own_name, WorkClass own_work, Kernels own_kernels) {
        kind = own_kind;
        name = own_name;
        work = own_work;
        kernels = own_kernels;
    }
    [[nodiscard]] constexpr Row with_flops(double (*of)(const Operator&, const FlopContext&)) const {
        Row row = *this;
        row.flops = of;
        return row;
    }
    [[nodiscard]] constexpr Row with_traffic(Traffic (*of)(const Operator&, const Slots&)) const {
        Row row = *this;
        row.traffic = of;
        return row;
    }
    [[nodiscard]] constexpr Row adds_to(GradientOutput one, GradientOutput other = {}) const {
        Row row = *this;
        row.gradients = {one, other};
        return row;
    }
    [[nodiscard]] constexpr Row with_products(ProductShapes (*of)(const Operator&),
                                              std::optional<OpKind> timed_like = {}) const {
        Row row = *this;
        row.products = of;
        row.timed_as = timed_like;
        return row;
    }
};

// In the order of the enumeration.
constexpr std::array<OperatorRow, kOpKindCount> kRows{
    Row(load_tokens, "load_tokens", Work::embedding, of_each_backend),
    Row(load_targets, "load_targets", Work::embedding, of_each_backend),
    Row(embedding_forward, "embedding_forward", Work::embedding, of_each_backend).with_traffic(lookup),
    Row(embedding_backward, "embedding_backward", Work::embedding, of_each_backend)
        .with_flops(per_input<1>)
        .with_traffic(lookup_backward)
        .adds_to({0, matrix}),
    Row(position_forward, "position_forward", Work::embedding, of_each_backend)
        .with_flops(per_input<1>)
        .with_traffic(position_lookup),
    Row(position_backward, "position_backward", Work::embedding, of_each_backend)
        .with_flops(per_input<1>)
        .with_traffic(position_lookup_backward)
        .adds_to({0, matrix}),
    Row(layer_norm_forward, "layer_norm_forward", Work::norm, of_each_backend).with_flops(norm_flops),
    Row(layer_norm_backward, "layer_norm_backward", Work::norm, of_each_backend)
        .with_flops(per_input<14>)
        .adds_to({1, input_vector}, {2, input_vector}),
    Row(rms_norm_forward, "rms_norm_forward", Work::norm, of_each_backend).with_flops(norm_flops),
    Row(rms_norm_backward, "rms_norm_backward", Work::norm, of_each_backend)
        .with_flops(per_input<14>)
        .adds_to({1, input_vector}),
    Row(linear_forward, "linear_forward", Work::product, of_each_backend)
        .with_flops(product_flops)
        .with_traffic(product_forward)
        .with_products(linear),
    Row(linear_backward_input, "linear_backward_input", Work::product, of_each_backend)
        .with_flops(product_flops)
        .with_traffic(product_backward_input)
        .with_products(linear_input),
    Row(linear_backward_weight, "linear_backward_weight", Work::product, of_each_backend)
        .with_flops(product_flops)
        .with_traffic(product_backward_weight)
        .adds_to({0, matrix}, {1, output_vector})
        .with_products(linear_weight),
    Row(head_norm_forward, "head_norm_forward", Work::norm, of_each_backend).with_flops(per_head_element<8>),
    Row(head_norm_backward, "head_norm_backward", Work::norm, of_each_backend)
        .with_flops(per_head_element<14>)
        .adds_to({1, head_vector}, {2, head_vector}),
    Row(rope_forward, "rope_forward", Work::elementwise, of_each_backend).with_flops(rotation),
    Row(rope_backward, "rope_backward", Work::elementwise, of_each_backend).with_flops(rotation),
    Row(attention_forward, "attention_forward", Work::attention, of_each_backend).with_flops(attention<1, 1>),
    Row(attention_backward, "attention_backward", Work::attention, of_each_backend).with_flops(attention<3, 2>),
    Row(scores_forward, "scores_forward", Work::attention_product, none)
        .with_flops(attention<1, 0>)
        .with_products(scores, linear_forward),
    Row(scores_backward, "scores_backward", Work::attention_product, none)
        .with_flops(attention<2, 0>)
        .with_products(scores_gradient, linear_forward),
    Row(softmax_forward, "softmax_forward", Work::attention_memory, none).with_flops(per_element<13>),
    Row(softmax_backward, "softmax_backward", Work::attention_memory, none).with_flops(per_element<4>),
    Row(dropout_forward, "dropout_forward", Work::elementwise, none).with_flops(per_element<1>),
    Row(dropout_backward, "dropout_backward", Work::elementwise, none).with_flops(per_element<1>),
    Row(context_forward, "context_forward", Work::attention_product, none)
        .with_flops(attention<0, 1>)
        .with_products(context, linear_forward),
    Row(context_backward, "context_backward", Work::attention_product, none)
        .with_flops(attention<0, 2>)
        .with_products(context_gradient, linear_forward),
    Row(attention_merge, "attention_merge", Work::attention_memory, of_each_backend).with_flops(per_output<4>),
    Row(copy_columns, "copy_columns", Work::attention_memory, of_each_backend).with_traffic(columns<false>),
    Row(add_columns, "add_columns", Work::attention_memory, of_each_backend)
        .with_flops(per_output<1>)
        .with_traffic(columns<true>),
    Row(repeat_heads, "repeat_heads", Work::attention_memory, of_each_backend),
    Row(sum_repeated_heads, "sum_repeated_heads", Work::attention_memory, of_each_backend).with_flops(sums_of_heads),
    Row(cut_heads, "cut_heads", Work::attention_memory, of_each_backend),
    Row(join_heads, "join_heads", Work::attention_memory, of_each_backend),
    Row(join_sequence, "join_sequence", Work::attention_memory, of_each_backend),
    Row(cut_sequence, "cut_sequence", Work::attention_memory, of_each_backend),
    Row(relu_forward, "relu_forward", Work::elementwise, of_each_backend).with_flops(per_element<1>),
    Row(relu_backward, "relu_backward", Work::elementwise, of_each_backend).with_flops(per_element<1>),
    Row(silu_forward, "silu_forward", Work::elementwise, none).with_flops(per_output<14>),
    Row(silu_backward, "silu_backward", Work::elementwise, none).with_flops(per_output<18>),
    Row(bias_add, "bias_add", Work::elementwise, none).with_flops(per_element<1>),
    Row(multiply, "multiply", Work::elementwise, none).with_flops(per_element<1>),
    Row(multiply_backward, "multiply_backward", Work::elementwise, none).with_flops(per_element<2>),
    Row(accumulate, "accumulate", Work::elementwise, of_each_backend)
        .with_flops(per_element<1>)
        .with_traffic(accumulation),
    Row(cast, "cast", Work::cast, of_each_backend).with_flops(per_element<2>),
    Row(router_forward, "router_forward", Work::routing, of_each_backend).with_flops(per_output<13>),
    Row(router_backward, "router_backward", Work::routing, of_each_backend).with_flops(per_output<13>),
    Row(permute_forward, "permute_forward", Work::routing, of_each_backend),
    Row(permute_backward, "permute_backward", Work::routing, of_each_backend).with_flops(per_input<1>),
    Row(combine_forward, "combine_forward", Work::routing, of_each_backend).with_flops(per_input<2>),
    Row(combine_backward, "combine_backward", Work::routing, of_each_backend).with_flops(per_input<4>),
    Row(group_by_expert, "group_by_expert", Work::routing, of_each_backend),
    Row(group_by_source, "group_by_source", Work::routing, of_each_backend),
    Row(expert_linear_forward, "expert_linear_forward", Work::expert_product, of_each_backend)
        .with_flops(product_flops)
        .with_traffic(product_forward)
        .with_products(experts, linear_forward),
    Row(expert_linear_backward_input, "expert_linear_backward_input", Work::expert_product, of_each_backend)
        .with_flops(product_flops)
        .with_traffic(product_backward_input)
        .with_products(experts_input, linear_backward_input),
    Row(expert_linear_backward_weight, "expert_linear_backward_weight", Work::expert_product, of_each_backend)
        .with_flops(product_flops)
        .with_traffic(product_backward_weight)
        .adds_to({0, expert_matrices})
        .with_products(experts_weight, linear_backward_weight),
    Row(gate_rows_forward, "gate_rows_forward", Work::elementwise, of_each_backend).with_flops(per_input<1>),
    Row(gate_rows_backward, "gate_rows_backward", Work::elementwise, of_each_backend).with_flops(per_input<2>),
    Row(gelu_forward, "gelu_forward", Work::elementwise, of_each_backend).with_flops(per_output<20>),
    Row(gelu_backward, "gelu_backward", Work::elementwise, of_each_backend).with_flops(per_output<30>),
    Row(swiglu_forward, "swiglu_forward", Work::elementwise, of_each_backend).with_flops(per_output<15>),
    Row(swiglu_backward, "swiglu_backward", Work::elementwise, of_each_backend).with_flops(per_output<24>),
    Row(residual_add, "residual_add", Work::elementwise, of_each_backend).with_flops(per_input<2>),
    Row(residual_add_backward, "residual_add_backward", Work::elementwise, of_each_backend).with_flops(per_input<1>),
    Row(bias_backward, "bias_backward", Work::elementwise, of_each_backend)
        .with_flops(per_output<1>)
        .adds_to({0, output_vector}),
    Row(cross_entropy_max, "cross_entropy_max", Work::loss, of_each_backend).with_flops(per_output<1>),
    Row(cross_entropy_sum, "cross_entropy_sum", Work::loss, of_each_backend).with_flops(per_output<kExponential>),
    Row(cross_entropy_loss, "cross_entropy_loss", Work::loss, of_each_backend).with_flops(losses),
    Row(cross_entropy_backward, "cross_entropy_backward", Work::loss, of_each_backend)
        .with_flops(per_output<kExponential>),
    Row(cross_entropy_correct, "cross_entropy_correct", Work::loss, of_each_backend)
        .with_flops(per_input<2>)
        .with_traffic(correction),
    Row(adamw, "adamw", Work::optimizer, of_each_backend),
    Row(sgd_momentum, "sgd_momentum", Work::optimizer, of_each_backend),
    Row(gradient_norm, "gradient_norm", Work::optimizer, of_each_backend),
    Row(gradient_scale, "gradient_scale", Work::optimizer, of_each_backend),
    Row(clear, "clear", Work::optimizer, of_each_backend),
    Row(copy_to_host, "copy_to_host", Work::copy, of_each_backend),
    Row(copy_from_host, "copy_from_host", Work::copy, of_each_backend),
    Row(host_wait, "host_wait", Work::host, of_each_backend),
};

constexpr bool rows_are_in_order() {
    for (std::size_t i = 0; i < kRows.size(); ++i) {
        if (static_cast<std::size_t>(kRows[i].kind) != i) return false;
    }
    return true;
}
static_assert(rows_are_in_order());

constexpr std::array<std::string_view, static_cast<std::size_t>(WorkClass::hidden) + 1> kWorkNames{
    "product",       "expert_product", "attention", "attention_product", "attention_memory", "norm",
    "elementwise",   "embedding",      "loss",      "routing",           "optimizer",        "cast",
    "copy",          "host",           "launch",    "host_layer",        "tp_layer",         "host_step",
    "communication", "tp_wait",        "hidden"};

}  // namespace

std::string_view name_of(WorkClass work) {
    return kWorkNames.at(static_cast<std::size_t>(work));
}

const OperatorRow& row_of(OpKind kind) {
    const auto place = static_cast<std::size_t>(kind);
    ORRERY_CHECK(place < kRows.size(), "unknown operator kind");
    return kRows[place];
}

std::string_view name_of(OpKind kind) {
    return row_of(kind).name;
}

bool Operator::is_matmul() const {
    return row_of(kind).work == WorkClass::product;
}
bool Operator::is_expert_matmul() const {
    return row_of(kind).work == WorkClass::expert_product;
}
bool Operator::is_attention_product() const {
    return row_of(kind).work == WorkClass::attention_product;
}
bool Operator::is_attention() const {
    return row_of(kind).work == WorkClass::attention;
}

bool Operator::is_fused() const {
    switch (kind) {
        case OpKind::layer_norm_forward:
        case OpKind::rms_norm_forward:
        case OpKind::cross_entropy_sum:
            return out[2] != kNoSlot;
        case OpKind::linear_forward:
            return out[1] != kNoSlot;
        default:
            return false;
    }
}

std::optional<OpKind> op_kind_named(std::string_view name) {
    const auto* const row =
        std::find_if(kRows.begin(), kRows.end(), [&](const OperatorRow& one) { return one.name == name; });
    return row == kRows.end() ? std::nullopt : std::optional(row->kind);
}

double slot_bytes(const Slots& slots, SlotIndex index) {
    if (index == kNoSlot) return 0;
    const SlotDecl& decl = slots[index];
    return real(decl.elements()) * real(size_of(decl.dtype));
}

Traffic traffic_of(const Operator& op, const Slots& slots) {
    const auto own = row_of(op.kind).traffic;
    return own != nullptr ? own(op, slots) : whole_operands(op, slots);
}

ProductShapes product_shapes(const Operator& op) {
    const auto products = row_of(op.kind).products;
    return products != nullptr ? products(op) : ProductShapes();
}

}  // namespace orrery::models
