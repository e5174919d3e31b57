// Norms and residual sums, fused or as separate passes of an eager framework.
#include "models/layer_builder.h"
#include "models/operator_table.h"

namespace orrery::models {

Norm LayerBuilder::norm_forward(SlotIndex x, NormWeights weights, const std::string& name, std::int64_t rows,
                                bool fp8_output, SlotIndex result) {
    const bool layer_norm = model_.norm == NormKind::layer_norm;
    Norm norm{.name = name, .weights = weights, .x = x, .rows = rows};
    norm.y = result != kNoSlot ? result : product_input(name + ".out", {rows, weights.width}, fp8_output);
    norm.stats = saved(name + ".stats", {rows, layer_norm ? 2 : 1}, DType::fp32);
    if (!kernels().fused_norm) {
        eager_norm_forward(norm);
        return norm;
    }
    Operator one{.kind = layer_norm ? OpKind::layer_norm_forward : OpKind::rms_norm_forward,
                 .sequence_sharded = sharded(),
                 .rows = rows,
                 .k = weights.width,
                 .in = {x, weights.weight, weights.bias},
                 .out = {norm.y, norm.stats}};
    if (const std::optional<Operator> sum = take_residual_sum(x)) {
        one.in[0] = sum->in[0];
        one.in[3] = sum->in[1];
        one.in[4] = sum->in[2];
        one.out[2] = x;
    }
    op(one);
    return norm;
}

std::optional<Operator> LayerBuilder::take_residual_sum(SlotIndex y) {
    if (!kernels().fused_residual_norm) return std::nullopt;
    return take_last([&](const Operator& op) {
        const bool is_sum = op.kind == OpKind::residual_add && op.out[0] == y;
        return is_sum && op.out[1] == kNoSlot && op.in[3] == kNoSlot;  // without a mask, and with a single bias
    });
}

// Besides input and output, autograd saves the input in fp32 and, for an RMSNorm written in tensor operations (as in
// Hugging Face's), the normalised values before the weight. A LayerNorm is one kernel in eager frameworks too, run in
// fp32 between two casts.
void LayerBuilder::eager_norm_forward(Norm& norm) {
    const std::int64_t width = norm.weights.width;
    const std::int64_t elements = norm.rows * width;
    const std::vector<std::int64_t> shape{norm.rows, width};
    const Operator pass{.sequence_sharded = sharded(), .rows = norm.rows, .k = width, .elements = elements};
    const auto emit = [&](OpKind kind, Operands in, Operands out) {
        Operator one = pass;
        one.kind = kind;
        one.in = in;
        one.out = out;
        op(one);
    };
    norm.copy = saved(norm.name + ".copy", shape, DType::fp32);
    emit(OpKind::cast, {norm.x}, {norm.copy});
    if (model_.norm == NormKind::layer_norm) {
        const SlotIndex y = transient(norm.name + ".out.fp32", shape, DType::fp32);
        emit(OpKind::layer_norm_forward, {norm.copy, norm.weights.weight, norm.weights.bias}, {y, norm.stats});
        emit(OpKind::cast, {y}, {norm.y});
        return;
    }
    const SlotIndex squares = transient(norm.name + ".squares", shape, DType::fp32);
    emit(OpKind::multiply, {norm.copy, norm.copy}, {squares});
    emit(OpKind::rms_norm_forward, {squares}, {kNoSlot, norm.stats});  // their mean and its inverse root
    const SlotIndex scaled = transient(norm.name + ".scaled", shape, DType::fp32);
    emit(OpKind::multiply, {norm.copy, norm.stats}, {scaled});
    norm.normalized = saved(norm.name + ".normalized", shape);
    emit(OpKind::cast, {scaled}, {norm.normalized});
    emit(OpKind::multiply, {norm.normalized, norm.weights.weight}, {norm.y});
}

void LayerBuilder::norm_backward(SlotIndex gradient, const Norm& norm, SlotIndex residual, SlotIndex result) {
    const bool layer_norm = model_.norm == NormKind::layer_norm;
    if (!kernels().fused_norm) {
        eager_norm_backward(gradient, norm, residual, result);
        return;
    }
    op({.kind = layer_norm ? OpKind::layer_norm_backward : OpKind::rms_norm_backward,
        .sequence_sharded = sharded(),
        .rows = norm.rows,
        .k = norm.weights.width,
        .in = {gradient, norm.x, norm.weights.weight, norm.stats, residual},
        .out = {result, gradient_of(norm.weights.weight), layer_norm ? gradient_of(norm.weights.bias) : kNoSlot}});
}

// The input itself counts as saved too: with it (and repeated key/value heads and an unfused gate) a block of
// Llama-3-8B saves the 56 s b h bytes that were measured for Hugging Face's eager block.
void LayerBuilder::eager_norm_backward(SlotIndex gradient, const Norm& norm, SlotIndex residual, SlotIndex result) {
    const std::int64_t width = norm.weights.width;
    const std::vector<std::int64_t> shape{norm.rows, width};
    const Operator pass{.sequence_sharded = sharded(), .rows = norm.rows, .k = width, .elements = norm.rows * width};
    const auto emit = [&](OpKind kind, Operands in, Operands out) {
        Operator one = pass;
        one.kind = kind;
        one.in = in;
        one.out = out;
        op(one);
    };
    const SlotIndex upcast = transient(norm.name + ".gradient.fp32", shape, DType::fp32);
    const SlotIndex weight = norm.weights.weight;
    if (model_.norm == NormKind::layer_norm) {
        emit(OpKind::cast, {gradient}, {upcast});
        const SlotIndex down = transient(norm.name + ".in.gradient.fp32", shape, DType::fp32);
        emit(OpKind::layer_norm_backward, {upcast, norm.copy, weight, norm.stats},
             {down, gradient_of(weight), gradient_of(norm.weights.bias)});
        const SlotIndex narrow = residual == kNoSlot ? result : transient(norm.name + ".in.gradient", shape);
        emit(OpKind::cast, {down, norm.x}, {narrow});
        std::get<Operator>(steps_->back()).bytes_read -=
            slot_bytes(layer_.slots, norm.x);  // an operand only so that it counts as saved; it is not read
        if (residual != kNoSlot) emit(OpKind::residual_add, {narrow, residual}, {result});
        return;
    }
    const SlotIndex normalized = transient(norm.name + ".normalized.gradient", shape);
    emit(OpKind::multiply_backward, {gradient, norm.normalized, weight}, {normalized, gradient_of(weight)});
    emit(OpKind::cast, {normalized}, {upcast});
    const SlotIndex copy = transient(norm.name + ".copy.gradient", shape, DType::fp32);
    emit(OpKind::multiply_backward, {upcast, norm.copy, norm.stats}, {copy});
    emit(OpKind::rms_norm_backward, {copy, norm.x, kNoSlot, norm.stats, residual}, {result});
}

SlotIndex LayerBuilder::residual_forward(SlotIndex a, SlotIndex b, const std::vector<SlotIndex>& biases, SlotIndex y,
                                         const std::string& name) {
    part_ = BlockPart::residual;
    const bool drops = context_.dropout > 0;
    const bool masks = drops || (kernels().fused_residual && kernels().masks_without_dropout);
    const SlotIndex mask = masks ? dropout_mask(name) : kNoSlot;
    if (kernels().fused_residual) {
        Operands in{a, b};
        for (std::size_t i = 0; i < biases.size(); ++i) in[2 + i] = biases[i];
        op({.kind = OpKind::residual_add,
            .sequence_sharded = sharded(),
            .rows = token_rows(),
            .k = model_.hidden,
            .in = in,
            .out = {y, mask}});
        return mask;
    }
    const std::int64_t elements = token_rows() * model_.hidden;
    for (const SlotIndex bias : biases) {
        if (bias == kNoSlot) continue;
        const SlotIndex biased = transient(slot(bias).name + ".added", {token_rows(), model_.hidden});
        op({.kind = OpKind::bias_add,
            .sequence_sharded = sharded(),
            .elements = elements,
            .in = {b, bias},
            .out = {biased}});
        b = biased;
    }
    if (drops) {
        const SlotIndex dropped = transient(name + ".dropped", {token_rows(), model_.hidden});
        op({.kind = OpKind::dropout_forward,
            .sequence_sharded = sharded(),
            .elements = elements,
            .in = {b},
            .out = {dropped, mask}});
        b = dropped;
    }
    op({.kind = OpKind::residual_add,
        .sequence_sharded = sharded(),
        .rows = token_rows(),
        .k = model_.hidden,
        .in = {a, b},
        .out = {y}});
    return mask;
}

}  // namespace orrery::models
