// One transformer block, with a dense MLP or with experts.
#include "core/error.h"
#include "models/layer_parts.h"

namespace orrery::models {
namespace {

MlpNames dense_mlp(const ModelSpec& model) {
    return {.ffn_hidden = model.ffn_hidden, .bias = model.mlp_bias};
}

/// x -> middle = x + attention(norm(x)) -> middle + mlp(norm(middle)).
Layer build_pre_norm(const ModelSpec& model, const LayerContext& context, bool with_experts) {
    LayerBuilder b(model, with_experts ? LayerKind::expert_block : LayerKind::block, context);
    const std::int64_t tokens = b.token_rows(), h = model.hidden;
    const bool fp8 = b.fp8();
    b.forward();
    const SlotIndex x = b.hidden_in();
    const SlotIndex middle = b.saved("middle", {tokens, h});

    b.part(BlockPart::norm);
    const Norm norm1 = b.norm_forward(x, b.norm_weights("norm1", h), "norm1", tokens, fp8);
    const Attention attention = attention_forward(b, norm1.y, "norm1");
    const SlotIndex attended = b.row_forward(attention.output, attention.out.row, "attention.projected");
    const SlotIndex mask1 = b.residual_forward(x, attended, {attention.bias}, middle, "attention.residual");
    const SlotIndex out = b.hidden_out();

    b.part(BlockPart::norm);
    // The router reads the norm's output, not an fp8 copy.
    const Norm norm2 = b.norm_forward(middle, b.norm_weights("norm2", h), "norm2", tokens, fp8 && !with_experts);
    Mlp mlp;
    Experts experts;
    SlotIndex result = kNoSlot;
    if (with_experts) {
        experts = experts_forward(b, norm2.y, "norm2", result);
    } else {
        mlp = mlp_forward(b, dense_mlp(model), b.column_input(norm2.y, "norm2", h, fp8, BlockPart::mlp_in));
        result = b.row_forward(mlp.fc2, mlp.activated.row, "mlp.projected");
    }
    const SlotIndex mask2 = b.residual_forward(middle, result, {mlp.bias}, out, "mlp.residual");

    b.backward();
    const SlotIndex gradient = b.hidden_gradient();
    const auto after_mlp = [&](SlotIndex normed) {
        b.part(BlockPart::norm);
        b.norm_backward(normed, norm2, gradient, gradient);
    };
    BranchGradient mlp_branch =
        b.branch_gradient(gradient, mask2, {mlp.bias}, "mlp.projected.gradient", fp8, !with_experts);
    if (with_experts) {
        experts_backward(b, experts, mlp_branch.shard, after_mlp);
    } else {
        b.part(BlockPart::mlp_out);
        const std::vector<LayerBuilder::ColumnGradient> fc1 = mlp_backward(b, mlp, mlp_branch);
        b.column_backward(mlp.input, fc1, after_mlp);
    }
    BranchGradient branch = b.branch_gradient(gradient, mask1, {attention.bias}, "attention.projected.gradient", fp8);
    const SlotIndex qkv = attention_backward(b, attention, branch);
    attention_input_backward(b, attention, qkv, [&](SlotIndex normed) {
        b.part(BlockPart::norm);
        b.norm_backward(normed, norm1, gradient, gradient);
    });
    return b.finish();
}

/// x -> middle = norm(x + attention(x)) -> norm(middle + mlp(middle)).
Layer build_post_norm(const ModelSpec& model, const LayerContext& context) {
    LayerBuilder b(model, LayerKind::block, context);
    const std::int64_t tokens = b.token_rows(), h = model.hidden;
    const bool fp8 = b.fp8();
    b.forward();
    const SlotIndex x = b.hidden_in();
    b.part(BlockPart::attention_projection);
    const Attention attention = attention_forward(b, x, "hidden");
    const SlotIndex attended = b.row_forward(attention.output, attention.out.row, "attention.projected");
    const SlotIndex sum1 = b.saved("attention.sum", {tokens, h});
    const SlotIndex mask1 = b.residual_forward(x, attended, {attention.bias}, sum1, "attention.residual");
    b.part(BlockPart::norm);
    const SlotIndex middle = b.product_input("middle", {tokens, h}, fp8);
    const Norm norm1 = b.norm_forward(sum1, b.norm_weights("norm1", h), "norm1", tokens, false, middle);
    const Mlp mlp = mlp_forward(b, dense_mlp(model), b.column_input(middle, "middle", h, fp8, BlockPart::mlp_in));
    const SlotIndex result = b.row_forward(mlp.fc2, mlp.activated.row, "mlp.projected");
    const SlotIndex sum2 = b.saved("mlp.sum", {tokens, h});
    const SlotIndex mask2 = b.residual_forward(middle, result, {mlp.bias}, sum2, "mlp.residual");
    b.part(BlockPart::norm);
    const Norm norm2 = b.norm_forward(sum2, b.norm_weights("norm2", h), "norm2", tokens, false, b.hidden_out());

    b.backward();
    const SlotIndex gradient = b.hidden_gradient();
    const auto join = [&](SlotIndex from_branch) {
        b.part(BlockPart::residual);
        b.accumulate(from_branch, gradient);
    };
    b.part(BlockPart::norm);
    b.norm_backward(gradient, norm2, kNoSlot, gradient);
    BranchGradient mlp_branch = b.branch_gradient(gradient, mask2, {mlp.bias}, "mlp.projected.gradient", fp8);
    const std::vector<LayerBuilder::ColumnGradient> fc1 = mlp_backward(b, mlp, mlp_branch);
    b.column_backward(mlp.input, fc1, join);
    b.part(BlockPart::norm);
    b.norm_backward(gradient, norm1, kNoSlot, gradient);
    BranchGradient branch = b.branch_gradient(gradient, mask1, {attention.bias}, "attention.projected.gradient", fp8);
    const SlotIndex qkv = attention_backward(b, attention, branch);
    attention_input_backward(b, attention, qkv, join);
    return b.finish();
}

/// x -> x + attention(norm1(x)) + mlp(norm2(x)), or with one norm for both. The branches' partial sums are added before
/// they are reduced over tensor-parallel ranks, so there is one reduction a pass, as in GPT-NeoX. One dropout mask
/// covers both branches.
Layer build_parallel(const ModelSpec& model, const LayerContext& context) {
    LayerBuilder b(model, LayerKind::block, context);
    const std::int64_t tokens = b.token_rows(), h = model.hidden;
    const bool fp8 = b.fp8(), one_norm = model.shared_input_norm;
    b.forward();
    const SlotIndex x = b.hidden_in();
    b.part(BlockPart::norm);
    const Norm norm1 = b.norm_forward(x, b.norm_weights("norm1", h), "norm1", tokens, fp8);
    Norm norm2 = norm1;
    if (!one_norm) norm2 = b.norm_forward(x, b.norm_weights("norm2", h), "norm2", tokens, fp8);
    Attention attention;
    ColumnInput mlp_input;
    if (one_norm) {
        mlp_input = b.column_input(norm1.y, "norm1", h, fp8, BlockPart::attention_projection);
        attention = attention_forward(b, norm1.y, "norm1", &mlp_input);
    } else {
        attention = attention_forward(b, norm1.y, "norm1");
    }
    b.part(BlockPart::attention_output);
    const SlotIndex attended = b.transient("attention.projected", {b.rows(), h});
    b.product_forward(attention.output, attention.out.row, attended);
    if (!one_norm) {
        b.part(BlockPart::norm);
        mlp_input = b.column_input(norm2.y, "norm2", h, fp8, BlockPart::mlp_in);
    }
    const Mlp mlp = mlp_forward(b, dense_mlp(model), mlp_input);
    const SlotIndex both = b.row_forward(mlp.fc2, mlp.activated.row, "mlp.projected", attended);
    const std::vector<SlotIndex> biases{attention.bias, mlp.bias};
    const SlotIndex mask = b.residual_forward(x, both, biases, b.hidden_out(), "residual");

    b.backward();
    const SlotIndex gradient = b.hidden_gradient();
    BranchGradient branch = b.branch_gradient(gradient, mask, biases, "branches.gradient", fp8);
    const std::vector<LayerBuilder::ColumnGradient> fc1 = mlp_backward(b, mlp, branch);
    const SlotIndex qkv = attention_backward(b, attention, branch);
    const auto through = [&](const Norm& norm) {
        return [&b, &norm, gradient](SlotIndex normed) {
            b.part(BlockPart::norm);
            b.norm_backward(normed, norm, gradient, gradient);
        };
    };
    if (one_norm) {
        std::vector<LayerBuilder::ColumnGradient> gradients = qkv_backward(b, attention.projection, qkv);
        gradients.insert(gradients.end(), fc1.begin(), fc1.end());
        b.column_backward(mlp_input, gradients, through(norm1));
    } else {
        b.column_backward(mlp_input, fc1, through(norm2));
        attention_input_backward(b, attention, qkv, through(norm1));
    }
    return b.finish();
}

}  // namespace

Layer build_block(const ModelSpec& model, const LayerContext& context, bool experts) {
    if (model.post_norm) return build_post_norm(model, context);
    if (model.parallel_residual) return build_parallel(model, context);
    return build_pre_norm(model, context, experts);
}

}  // namespace orrery::models
