// The dense MLP and its activation.
#include <optional>
#include <utility>

#include "core/error.h"
#include "models/layer_parts.h"

namespace orrery::models {
namespace {

bool merges_gate(const KernelChoices& kernels) {
    return kernels.merged_projections && kernels.merged_gate;
}

/// Takes the product `y` out of the pass, if it is the last step and can store the GELU of its result, too.
std::optional<Operator> take_product(LayerBuilder& b, SlotIndex y, const ExpertRows& experts) {
    if (!b.kernels().gelu_epilogue || experts.groups > 0) return std::nullopt;
    return b.take_last([&](const Operator& op) {
        const bool is_whole = op.pieces == 1 && op.n == b.slot(y).shape.back();
        return op.kind == OpKind::linear_forward && op.out[0] == y && is_whole;
    });
}

}  // namespace

Activation activation_forward(LayerBuilder& b, const std::string& name, SlotIndex in, std::int64_t rows,
                              std::int64_t width, bool fp8, std::int64_t most_rows, ExpertRows experts) {
    Activation a{.name = name, .in = in, .rows = rows, .width = width, .most_rows = most_rows, .experts = experts};
    const std::vector<std::int64_t> shape{rows, width};
    const MlpKind kind = b.model().mlp;
    const Operator pass{.rows = rows, .n = width, .groups = experts.groups, .sources = experts.sources};
    const SlotIndex counts = experts.counts;
    const auto emit = [&](OpKind op_kind, Operands operands, SlotIndex out) -> Operator& {
        Operator op = pass;
        op.kind = op_kind;
        op.in = operands;
        op.out = {out};
        return b.op(op);
    };
    if (kind == MlpKind::swiglu && !b.kernels().fused_activation) {
        // Each pass reads only the gate half or only the up half of `in`.
        const double half = static_cast<double>(rows * width * size_of(b.slot(in).dtype));
        a.gate = b.saved(name + ".gate", shape, b.context().activation_dtype, most_rows);
        emit(OpKind::silu_forward, {in, counts}, a.gate).bytes_read -= half;
        a.out = b.product_input(name, shape, fp8, most_rows);
        emit(OpKind::multiply, {a.gate, in, counts}, a.out).bytes_read -= half;
        return a;
    }
    a.out = b.product_input(name, shape, fp8, most_rows);
    switch (kind) {
        case MlpKind::gelu:
            if (const std::optional<Operator> product = take_product(b, in, experts)) {
                Operator with_gelu = *product;
                with_gelu.out[1] = a.out;
                b.op(with_gelu);
            } else {
                emit(OpKind::gelu_forward, {in, counts}, a.out);
            }
            return a;
        case MlpKind::swiglu:
            emit(OpKind::swiglu_forward, {in, counts}, a.out);
            return a;
        case MlpKind::relu:
            emit(OpKind::relu_forward, {in, counts}, a.out);
            return a;
    }
    throw_bug(__FILE__, __LINE__, "MlpKind", "unknown kind of MLP");
}

SlotIndex activation_backward(LayerBuilder& b, const Activation& a, SlotIndex out_gradient,
                              const std::string& in_name) {
    const MlpKind kind = b.model().mlp;
    const DType dtype = b.context().activation_dtype;
    const SlotIndex counts = a.experts.counts;
    Operator op{.rows = a.rows,
                .n = a.width,
                .groups = a.experts.groups,
                .sources = a.experts.sources,
                .in = {out_gradient, a.in, counts},
                .out = {out_gradient}};
    if (kind != MlpKind::swiglu) {
        op.kind = kind == MlpKind::gelu ? OpKind::gelu_backward : OpKind::relu_backward;
        b.op(op);
        return out_gradient;
    }
    const SlotIndex gradient = b.transient(in_name + ".gradient", {a.rows, 2 * a.width}, dtype, a.most_rows);
    if (a.gate == kNoSlot) {
        op.kind = OpKind::swiglu_backward;
        op.out = {gradient};
        b.op(op);
        return gradient;
    }
    const double half = static_cast<double>(a.rows * a.width * size_of(dtype));
    const SlotIndex gate = b.transient(a.name + ".gate.gradient", {a.rows, a.width}, dtype, a.most_rows);
    op.kind = OpKind::multiply_backward;
    op.in = {out_gradient, a.gate, a.in, counts};
    op.out = {gate, gradient};
    Operator& product = b.op(op);
    product.bytes_read -= half;
    product.bytes_written -= half;
    op.kind = OpKind::silu_backward;
    op.in = {gate, a.in, counts};
    op.out = {gradient};
    Operator& silu = b.op(op);
    silu.bytes_read -= half;
    silu.bytes_written -= half;
    const KernelChoices& kernels = b.kernels();
    if (!merges_gate(kernels) || !kernels.splits_projections || a.experts.groups > 0) return gradient;
    const SlotIndex joined = b.transient(in_name + ".gradient.joined", b.slot(gradient).shape);
    b.copy(gradient, joined, b.slot(joined).elements());
    return joined;
}

Mlp mlp_forward(LayerBuilder& b, const MlpNames& names, const ColumnInput& input) {
    const ModelSpec& model = b.model();
    Mlp mlp{.name = names.prefix, .input = input};
    const std::int64_t f = names.ffn_hidden / b.tp();
    const bool gated = model.mlp == MlpKind::swiglu;
    const std::int64_t in_width = gated ? 2 * f : f;
    const std::vector<std::string> parts = gated
                                               ? std::vector<std::string>{names.prefix + ".gate", names.prefix + ".up"}
                                               : std::vector<std::string>{names.prefix + ".fc1"};
    std::vector<ParameterPart> weights, biases;
    for (const std::string& part : parts) {
        weights.push_back({part + ".weight", names.ffn_hidden, model.hidden, f, 0});
        biases.push_back({part + ".bias", names.ffn_hidden, 1, f, 1});
    }
    b.part(names.in);
    const auto add = [&](const std::string& name, std::vector<ParameterPart> weight_parts,
                         std::vector<ParameterPart> bias_parts, std::int64_t n) {
        const SlotIndex weight = b.column_weight(name + ".weight", std::move(weight_parts));
        const SlotIndex bias = names.bias ? b.column_bias(name + ".bias", std::move(bias_parts)) : kNoSlot;
        mlp.fc1.push_back(b.product(name, weight, bias, n, model.hidden, names.in, input.fp8));
    };
    if (!gated || merges_gate(b.kernels())) {
        add(names.prefix + ".fc1", weights, biases, in_width);
    } else {
        for (std::size_t i = 0; i < parts.size(); ++i) add(parts[i], {weights[i]}, {biases[i]}, f);
    }
    const SlotIndex fc1_out = b.saved(names.prefix + ".fc1.out", {b.rows(), in_width});
    for (const Product& product : mlp.fc1) b.column_forward(input, product, fc1_out);
    b.part(names.middle);
    mlp.activation = activation_forward(b, names.prefix + ".activated", fc1_out, b.rows(), f, input.fp8);
    mlp.activated = b.cast_for_products(names.prefix + ".activated", mlp.activation.out, input.fp8, true);
    const std::string down = names.prefix + (gated ? ".down" : ".fc2");
    const SlotIndex fc2_weight = b.row_weight(down + ".weight", model.hidden, names.ffn_hidden);
    mlp.fc2 = b.product(down, fc2_weight, kNoSlot, model.hidden, f, names.out, input.fp8);
    mlp.bias = names.bias ? b.row_bias(down + ".bias") : kNoSlot;
    return mlp;
}

std::vector<LayerBuilder::ColumnGradient> mlp_backward(LayerBuilder& b, const Mlp& mlp, BranchGradient& branch) {
    const SlotIndex activated = b.transient(mlp.name + ".activated.gradient", {b.rows(), mlp.fc2.k});
    b.row_backward(mlp.fc2, branch, mlp.activated.column, activated);
    b.part(mlp.fc2.part == BlockPart::shared_expert ? BlockPart::shared_expert : BlockPart::activation);
    const SlotIndex gradient = activation_backward(b, mlp.activation, activated, mlp.name + ".fc1.out");
    std::vector<LayerBuilder::ColumnGradient> gradients;
    for (const Product& product : mlp.fc1) gradients.push_back({&product, gradient});
    return gradients;
}

}  // namespace orrery::models
