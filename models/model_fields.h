// The fields of a model file, object by object (core/json_fields.h).
#pragma once

#include <string_view>

#include "core/json_fields.h"
#include "models/model_checks.h"
#include "models/model_limits.h"
#include "models/model_spec.h"

namespace orrery {

template <>
inline constexpr int kValuesOf<models::NormKind> = static_cast<int>(models::NormKind::rms_norm) + 1;
template <>
inline constexpr int kValuesOf<models::PositionKind> = static_cast<int>(models::PositionKind::alibi) + 1;
template <>
inline constexpr int kValuesOf<models::MlpKind> = static_cast<int>(models::MlpKind::relu) + 1;

}  // namespace orrery

namespace orrery::models {

[[nodiscard]] std::string_view name_of(NormKind kind);
[[nodiscard]] std::string_view name_of(PositionKind kind);
[[nodiscard]] std::string_view name_of(MlpKind kind);

inline constexpr IntegerRange kDenseLayerLimits{0, kLayerLimits.high};
inline const OneOf kRopeScalings{{"none", "linear", "llama3", "yarn"}};

template <Either<ModelSpec::RopeScaling> Object>
void visit_fields(Object& s, auto&& visit) {
    visit("type", s.type, kRequired, kRopeScalings);
    const bool is_llama3 = s.type == "llama3", is_yarn = s.type == "yarn";
    visit("factor", s.factor, required_if(s.type != "none"), kFactorLimits);
    visit("low_frequency_factor", s.low_frequency_factor, required_if(is_llama3), kFactorLimits);
    visit("high_frequency_factor", s.high_frequency_factor, required_if(is_llama3), kFactorLimits);
    visit("original_max_positions", s.original_max_positions, required_if(is_llama3 || is_yarn), kPositionLimits);
    visit("beta_fast", s.beta_fast, required_if(is_yarn), kFactorLimits);
    visit("beta_slow", s.beta_slow, required_if(is_yarn), kFactorLimits);
    visit("mscale", s.mscale, Presence{.exists = is_yarn}, kScaleLimits);
    visit("mscale_all_dim", s.mscale_all_dim, Presence{.exists = is_yarn}, kScaleLimits);
}

template <Either<MixtureOfExperts> Object>
void visit_fields(Object& m, auto&& visit) {
    visit("expert_count", m.expert_count, kRequired, kPositiveInteger);
    visit("top_k", m.top_k, kRequired, kExpertLimits);
    visit("expert_ffn_hidden", m.expert_ffn_hidden, kRequired, kExpertFfnHiddenLimits);
    visit("shared_ffn_hidden", m.shared_ffn_hidden, kSharedFfnHiddenLimits);
    visit("first_dense_layers", m.first_dense_layers, kDenseLayerLimits);
    visit("layer_interval", m.layer_interval, kLayerLimits);
    visit("score_correction_bias", m.score_correction_bias);
    visit("shared_expert_gate", m.shared_expert_gate);
    visit("expert_groups", m.expert_groups, kExpertLimits);
    visit("top_k_groups", m.top_k_groups, kExpertLimits);
    visit("sigmoid_scores", m.sigmoid_scores);
    visit("normalize_top_k", m.normalize_top_k);
    visit("routed_scale", m.routed_scale, kFactorLimits);
}

template <Either<LatentAttention> Object>
void visit_fields(Object& l, auto&& visit) {
    visit("q_lora_rank", l.q_lora_rank, kRequired, kRankLimits);
    visit("kv_lora_rank", l.kv_lora_rank, kRequired, kPositiveInteger);
    visit("nope_head_dim", l.nope_head_dim, kRequired, kHeadLimits);
    visit("rope_head_dim", l.rope_head_dim, kRequired, kHeadLimits);
    visit("v_head_dim", l.v_head_dim, kRequired, kHeadLimits);
}

/// Keys that may be absent are written only if they differ from the value of a plain decoder, which is their default.
template <Either<ModelSpec> Object>
void visit_fields(Object& m, auto&& visit) {
    visit("name", m.name, kRequired);
    visit("family", m.family, kRequired, OneOf{family_names()});
    visit("layers", m.layers, kRequired, kLayerLimits);
    visit("hidden", m.hidden, kRequired, kHiddenLimits);
    visit("heads", m.heads, kRequired, kHeadLimits);
    visit("kv_heads", m.kv_heads, kRequired, kHeadLimits);
    visit("head_dim", m.head_dim, kRequired, kHeadLimits);
    visit("ffn_hidden", m.ffn_hidden, kRequired, kFfnHiddenLimits);
    visit("vocab", m.vocab, kRequired, kVocabLimits);
    visit("max_positions", m.max_positions, kRequired, kPositionLimits);
    visit("norm", m.norm, kRequired);
    visit("norm_epsilon", m.norm_epsilon, kRequired, kNormEpsilonLimits);
    visit("position", m.position, kRequired);
    visit("rope_theta", m.rope_theta, required_if(m.position == PositionKind::rotary), kThetaLimits);
    visit("rope_scaling", m.rope_scaling, required_if(m.position == PositionKind::rotary));
    visit("mlp", m.mlp, kRequired);
    visit("qkv_bias", m.qkv_bias, kRequired);
    visit("attention_output_bias", m.attention_output_bias, kRequired);
    visit("mlp_bias", m.mlp_bias, kRequired);
    visit("qk_norm", m.qk_norm, kRequired);
    visit("tied_embeddings", m.tied_embeddings, kRequired);
    visit("sliding_window", m.sliding_window, kRequired, kWindowLimits);
    visit("causal", m.causal, kIfChanged);
    visit("post_norm", m.post_norm, kIfChanged);
    visit("final_norm", m.final_norm, kIfChanged);
    visit("embedding_norm", m.embedding_norm, kIfChanged);
    visit("parallel_residual", m.parallel_residual, kIfChanged);
    visit("shared_input_norm", m.shared_input_norm, kIfChanged);
    visit("rotary_fraction", m.rotary_fraction, kIfChanged, kRotaryFractionLimits);
    visit("token_types", m.token_types, kIfChanged, kExtraRowLimits);
    visit("position_offset", m.position_offset, kIfChanged, kExtraRowLimits);
    visit("head_transform", m.head_transform, kIfChanged);
    visit("head_bias", m.head_bias, kIfChanged);
    visit("pooler", m.pooler, kIfChanged);
    visit("left_out", m.left_out, kIfChanged);
    visit("left_out_prediction_layers", m.left_out_prediction_layers, kIfChanged, kPredictionLayerLimits);
    visit("moe", m.moe, kIfChanged);
    visit("latent", m.latent, kIfChanged);
}

}  // namespace orrery::models
