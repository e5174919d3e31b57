#include "exec/operator_shapes.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/error.h"
#include "models/operator_table.h"

namespace orrery::exec {

using models::Operator;

kernels::LinearShape linear_shape(const Operator& op) {
    return {op.rows, op.n, op.k};
}
kernels::NormShape norm_shape(const Operator& op, const OperatorPointers& at) {
    const kernels::NormShape shape{op.rows, op.k, at.in_width[0]};
    ORRERY_CHECK(shape.stride >= op.k && shape.stride == at.out_width[0],
                 std::string(name_of(op.kind)) + ": rows too narrow, or of different widths");
    return shape;
}
kernels::HeadShape head_shape(const Operator& op) {
    return {op.rows, op.heads, op.kv_heads, op.head_dim};
}

kernels::EmbeddingShape embedding_shape(const Operator& op, const OperatorContext& context) {
    return {op.rows, op.k, context.vocabulary_index * op.n, op.n};
}

kernels::VocabShard vocab_shard(const Operator& op, const OperatorContext& context) {
    const std::int64_t start = context.vocabulary_index * op.n;
    return {op.rows, op.n, std::clamp<std::int64_t>(context.model->vocab - start, 0, op.n), start};
}

kernels::LatentHeads latent_heads(const Operator& op, const models::LatentAttention& latent) {
    return {.rows = op.rows,
            .heads = op.heads,
            .nope_dim = latent.nope_head_dim,
            .rope_dim = latent.rope_head_dim,
            .value_dim = latent.v_head_dim};
}

std::vector<std::int64_t> head_sections(const Operator& op, const OperatorContext& context) {
    const std::int64_t all = context.cp;
    if (op.kv_heads == 0) return {op.heads * op.value_dim * all};
    return {op.heads * op.head_dim * all, op.kv_heads * op.head_dim * all, op.kv_heads * op.value_dim * all};
}

kernels::RouterShape router_shape(const Operator& op, const models::ModelSpec& model) {
    const models::MixtureOfExperts& moe = model.moe;
    return {.tokens = op.rows,
            .experts = op.n,
            .top_k = moe.top_k,
            .sigmoid_scores = moe.sigmoid_scores,
            .normalize_top_k = moe.normalize_top_k,
            .routed_scale = moe.routed_scale,
            .expert_groups = moe.expert_groups,
            .top_k_groups = moe.top_k_groups};
}

kernels::PermuteShape permute_shape(const Operator& op, const models::ModelSpec& model) {
    const std::int64_t top_k = model.moe.top_k;
    ORRERY_CHECK(op.rows % top_k == 0,
                 "the rows are not a multiple of top_k; only the simulator drops tokens beyond a capacity");
    return {op.rows / top_k, top_k, op.k};
}

void check_columns(const Operator& op, const OperatorPointers& at) {
    using models::OpKind;
    const bool is_forward = op.kind == OpKind::linear_forward, is_input = op.kind == OpKind::linear_backward_input;
    const bool fit =
        is_forward ? op.k <= at.in_width[0] && op.to_column + op.n <= at.out_width[0]
                   : op.from_column + op.n <= at.in_width[0] && op.k <= (is_input ? at.out_width[0] : at.in_width[1]);
    ORRERY_CHECK(fit, std::string(name_of(op.kind)) + ": rows are too narrow for the GEMM");
}

kernels::RotaryFrequencies rotary_frequencies(const models::ModelSpec& model) {
    kernels::RotaryFrequencies frequencies;
    const auto& scaling = model.rope_scaling;
    if (scaling.type == "llama3") {
        frequencies.scaling = kernels::RotaryFrequencies::Scaling::llama3;
    } else if (scaling.type == "linear") {
        frequencies.scaling = kernels::RotaryFrequencies::Scaling::linear;
    } else if (scaling.type == "yarn") {
        frequencies.scaling = kernels::RotaryFrequencies::Scaling::yarn;
        if (scaling.beta_fast > 0) frequencies.beta_fast = scaling.beta_fast;
        if (scaling.beta_slow > 0) frequencies.beta_slow = scaling.beta_slow;
        const bool given = scaling.mscale > 0 && scaling.mscale_all_dim > 0;
        frequencies.magnitude = kernels::yarn_magnitude(scaling.factor, given ? scaling.mscale : 1.0);
        if (given) frequencies.magnitude /= kernels::yarn_magnitude(scaling.factor, scaling.mscale_all_dim);
    } else {
        ORRERY_CHECK(scaling.type == "none", "frequencies of type " + scaling.type);
    }
    frequencies.theta = model.rope_theta;
    frequencies.factor = scaling.factor;
    frequencies.low_frequency_factor = scaling.low_frequency_factor;
    frequencies.high_frequency_factor = scaling.high_frequency_factor;
    frequencies.original_max_positions = scaling.original_max_positions;
    return frequencies;
}

void for_each_overwritten(const Operator& op, const std::function<void(std::size_t, std::int64_t)>& visit) {
    bool any = false;
    for (const models::GradientOutput& gradient : models::row_of(op.kind).gradients) {
        if (gradient.elements == nullptr) continue;
        visit(gradient.out, gradient.elements(op));
        any = true;
    }
    ORRERY_CHECK(any, std::string(name_of(op.kind)) + " has no gradient outputs");
}

}  // namespace orrery::exec
