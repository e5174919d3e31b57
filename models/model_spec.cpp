#include "models/model_spec.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace orrery::models {
namespace {

/// Parameters of a norm: its weight and, for a LayerNorm, its bias.
std::int64_t norm_parameters(const ModelSpec& model) {
    return model.norm == NormKind::layer_norm ? 2 * model.hidden : model.hidden;
}

/// Weights of an MLP's matrices: two, or three if it is gated.
std::int64_t mlp_weights(const ModelSpec& m, std::int64_t ffn_hidden) {
    return (m.mlp == MlpKind::swiglu ? 3 : 2) * m.hidden * ffn_hidden;
}

/// Weights of the attention's projections; see LatentAttention for the closed form of the first branch.
std::int64_t attention_weights(const ModelSpec& m) {
    if (m.has_latent_attention()) {
        const LatentAttention& l = m.latent;
        const std::int64_t query =
            l.q_lora_rank > 0 ? (m.hidden + m.q_width()) * l.q_lora_rank : m.hidden * m.q_width();
        const std::int64_t key_value =
            m.hidden * (l.kv_lora_rank + l.rope_head_dim) + l.kv_lora_rank * m.heads * (l.nope_head_dim + l.v_head_dim);
        return query + key_value + m.attention_out_width() * m.hidden;
    }
    return m.hidden * (2 * m.q_width() + 2 * m.kv_width());
}

std::int64_t attention_parameters(const ModelSpec& m) {
    std::int64_t count = attention_weights(m);
    count += m.has_latent_attention() ? m.latent.q_lora_rank + m.latent.kv_lora_rank : 0;  // their norms
    count += m.qkv_bias ? m.q_width() + 2 * m.kv_width() : 0;
    count += m.attention_output_bias ? m.hidden : 0;
    count += m.qk_norm ? 2 * m.head_dim : 0;
    return count;
}

std::int64_t expert_layer_count(const ModelSpec& m) {
    std::int64_t count = 0;
    for (std::int64_t layer = 0; layer < m.layers; ++layer) count += m.is_expert_layer(layer) ? 1 : 0;
    return count;
}

/// Weights that an expert layer has instead of an MLP: the router, `experts` routed experts and the shared experts.
std::int64_t expert_layer_weights(const ModelSpec& m, std::int64_t experts) {
    const MixtureOfExperts& moe = m.moe;
    return m.hidden * moe.expert_count + experts * mlp_weights(m, moe.expert_ffn_hidden) +
           mlp_weights(m, moe.shared_ffn_hidden) + (moe.shared_expert_gate ? m.hidden : 0);
}

/// Parameters of a block with `experts` routed experts, or with an MLP.
std::int64_t block_parameters(const ModelSpec& m, bool has_experts, std::int64_t experts) {
    const std::int64_t mlp = mlp_weights(m, m.ffn_hidden) + (m.mlp_bias ? m.mlp_in_width() + m.hidden : 0);
    return (m.shared_input_norm ? 1 : 2) * norm_parameters(m) + attention_parameters(m) +
           (has_experts ? expert_layer_weights(m, experts) : mlp);
}

std::int64_t pooler_parameters(const ModelSpec& m) {
    return m.pooler ? m.hidden * m.hidden + m.hidden : 0;
}

/// All parameters, with `experts` routed experts in each expert layer.
std::int64_t parameters_with(const ModelSpec& m, std::int64_t experts) {
    std::int64_t count = m.vocab * m.hidden + m.token_types * m.hidden;
    if (m.position == PositionKind::learned) count += (m.max_positions + m.position_offset) * m.hidden;
    count += m.embedding_norm ? norm_parameters(m) : 0;

    const std::int64_t expert_layers = expert_layer_count(m);
    count += (m.layers - expert_layers) * block_parameters(m, false, 0);
    count += expert_layers * block_parameters(m, true, experts);

    count += m.final_norm ? norm_parameters(m) : 0;
    count += m.head_transform ? m.hidden * m.hidden + m.hidden + norm_parameters(m) : 0;
    count += m.head_bias ? m.vocab : 0;
    if (!m.tied_embeddings) count += m.vocab * m.hidden;
    return count + pooler_parameters(m);
}

/// FLOPs of the attention core of one block in the forward pass of a sequence: the scores, and their product with the
/// values.
double core_flops(const ModelSpec& m, std::int64_t sequence_length, FlopsConvention convention) {
    const auto s = static_cast<double>(sequence_length);
    // Widths of the scores' products (all query heads) and of the products with the values (the attention's output).
    // Both are a*d, except in latent attention.
    const auto core_width = static_cast<double>(m.q_width() + m.attention_out_width());
    // Attended (query, key) pairs. With a sliding window w < s the square becomes a band.
    const double w = m.sliding_window > 0 ? static_cast<double>(std::min(m.sliding_window, sequence_length)) : s;
    const bool halved = convention == FlopsConvention::causal_half && m.causal;
    const bool square = convention == FlopsConvention::palm;
    return 2 * (square ? s * s : halved ? s * w - w * w / 2 : s * w) * core_width;
}

}  // namespace

std::int64_t ModelSpec::rotary_width() const {
    if (has_latent_attention()) return latent.rope_head_dim;
    return std::llround(rotary_fraction * static_cast<double>(head_dim));
}

ParameterCounts parameter_counts(const ModelSpec& m) {
    ParameterCounts counts;
    counts.embedding = (m.vocab * (m.tied_embeddings ? 1 : 2) + m.token_types) * m.hidden;
    if (m.position == PositionKind::learned) counts.embedding += (m.max_positions + m.position_offset) * m.hidden;
    counts.dense = parameters_with(m, 0) - counts.embedding;
    counts.experts = parameters_with(m, m.moe.expert_count) - counts.dense - counts.embedding;
    counts.active = parameters_with(m, m.moe.top_k);
    return counts;
}

std::int64_t parameter_count(const ModelSpec& m) {
    return parameters_with(m, m.moe.expert_count);
}

std::int64_t active_parameter_count(const ModelSpec& m) {
    return parameters_with(m, m.moe.top_k);
}

std::string name_of(FlopsConvention convention) {
    switch (convention) {
        case FlopsConvention::palm:
            return "palm";
        case FlopsConvention::full_attention:
            return "full-attention";
        case FlopsConvention::causal_half:
            return "causal-half";
    }
    return "?";
}

double model_flops_per_sequence(const ModelSpec& m, std::int64_t sequence_length, FlopsConvention convention) {
    ORRERY_CHECK(sequence_length > 0, "FLOPs of a sequence of " + std::to_string(sequence_length) + " tokens");
    const auto s = static_cast<double>(sequence_length);
    const auto layers = static_cast<double>(m.layers);
    const auto hidden = static_cast<double>(m.hidden);
    const auto vocab = static_cast<double>(m.vocab);
    if (convention == FlopsConvention::palm) {
        // PaLM appendix B: 6N + 12*L*H*Q*T, where H*Q is all heads together (= h in most models). With experts N counts
        // active parameters, and with latent attention H*Q is the mean of both widths, as in torchtitan.
        auto n = static_cast<double>(active_parameter_count(m) - pooler_parameters(m));
        if (!m.tied_embeddings) n -= vocab * hidden;
        const auto core_width = static_cast<double>(m.q_width() + m.attention_out_width());
        return s * (6 * n + 6 * layers * core_width * s);
    }
    const double core = core_flops(m, sequence_length, convention);
    const double projections = 2 * s * static_cast<double>(attention_weights(m));
    const auto expert_layers = static_cast<double>(expert_layer_count(m));
    const double mlps = 2 * s *
                        ((layers - expert_layers) * static_cast<double>(mlp_weights(m, m.ffn_hidden)) +
                         expert_layers * static_cast<double>(expert_layer_weights(m, m.moe.top_k)));
    const double head = 2 * s * hidden * (vocab + (m.head_transform ? hidden : 0));
    return 3 * (layers * (projections + core) + mlps + head);  // backward is twice the forward
}

LeftOutLayers prediction_layers_left_out(const ModelSpec& m, std::int64_t sequence_length, FlopsConvention convention) {
    const std::int64_t depths = m.left_out_prediction_layers;
    const bool has_experts = m.is_expert_layer(m.layers - 1);
    const std::int64_t joins = 2 * m.hidden * m.hidden + 3 * norm_parameters(m);
    const std::int64_t head = m.vocab * m.hidden;
    const auto s = static_cast<double>(sequence_length);
    LeftOutLayers result{.parameters = depths * (joins + block_parameters(m, has_experts, m.moe.expert_count))};
    std::int64_t used = 0;  // parameters or, where products alone are counted, weights that one token uses
    if (convention == FlopsConvention::palm) {
        used = joins + block_parameters(m, has_experts, m.moe.top_k) + head;
    } else {
        used = 2 * m.hidden * m.hidden + attention_weights(m) + head +
               (has_experts ? expert_layer_weights(m, m.moe.top_k) : mlp_weights(m, m.ffn_hidden));
    }
    result.flops = static_cast<double>(depths) *
                   (6 * s * static_cast<double>(used) + 3 * core_flops(m, sequence_length, convention));
    return result;
}

}  // namespace orrery::models
