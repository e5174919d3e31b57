#include "models/model_spec.h"

#include <algorithm>

#include "core/error.h"

namespace orrery::models {
namespace {

/// Numbers of a norm's weight, with a bias when it is a LayerNorm.
std::int64_t norm_parameters(const ModelSpec& model) {
    return model.norm == NormKind::layer_norm ? 2 * model.hidden : model.hidden;
}

std::int64_t block_parameters(const ModelSpec& m) {
    const std::int64_t qkv_width = m.q_width() + 2 * m.kv_width();
    std::int64_t count = 2 * norm_parameters(m);
    count += m.hidden * qkv_width + (m.qkv_bias ? qkv_width : 0);
    count += m.q_width() * m.hidden + (m.attention_output_bias ? m.hidden : 0);
    count += m.qk_norm ? 2 * m.head_dim : 0;
    count += m.hidden * m.mlp_in_width() + (m.mlp_bias ? m.mlp_in_width() : 0);
    count += m.ffn_hidden * m.hidden + (m.mlp_bias ? m.hidden : 0);
    return count;
}

}  // namespace

std::int64_t parameter_count(const ModelSpec& m) {
    std::int64_t count = m.vocab * m.hidden;
    if (m.position == PositionKind::learned) count += m.max_positions * m.hidden;
    count += m.layers * block_parameters(m) + norm_parameters(m);
    if (!m.tied_embeddings) count += m.vocab * m.hidden;
    return count;
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
    const auto q = static_cast<double>(m.q_width());
    const auto kv = static_cast<double>(m.kv_width());
    const auto vocab = static_cast<double>(m.vocab);
    if (convention == FlopsConvention::palm) {
        // PaLM appendix B: 6N + 12*L*H*Q*T, where H*Q is all heads together (= h in most models).
        double n = static_cast<double>(parameter_count(m));
        if (!m.tied_embeddings) n -= vocab * hidden;
        return s * (6 * n + 12 * layers * q * s);
    }
    // Positions that a query meets, summed over the queries. With a sliding window w < s the square becomes a band.
    const double w = m.sliding_window > 0 ? static_cast<double>(std::min(m.sliding_window, sequence_length)) : s;
    const double pairs = convention == FlopsConvention::full_attention ? s * w : s * w - w * w / 2;
    const double projections = 2 * s * hidden * (2 * q + 2 * kv);
    const double core = 4 * pairs * q;  // scores and their product with the values
    const double mlp = 2 * s * hidden * static_cast<double>(m.mlp_in_width() + m.ffn_hidden);
    const double forward = layers * (projections + core + mlp) + 2 * s * hidden * vocab;
    return 3 * forward;  // backward is twice the forward
}

}  // namespace orrery::models
