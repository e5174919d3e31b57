#include "models/model_checks.h"

#include <algorithm>
#include <cmath>

#include "core/enum_names.h"
#include "core/error.h"
#include "models/model_limits.h"

namespace orrery::models {
namespace {

class Checker {
  public:
    Checker(const std::string& source, const std::function<std::string(const std::string&)>& pointer_of)
        : source_(source), pointer_of_(pointer_of) {}

    void range(const std::string& key, std::int64_t value, IntegerRange allowed) const {
        if (!allowed.contains(value)) fail(key, std::to_string(value), description(allowed));
    }
    void range(const std::string& key, double value, NumberRange allowed) const {
        if (!allowed.contains(value)) fail(key, shortest(value), description(allowed));
    }
    [[noreturn]] void fail(const std::string& key, const std::string& value, const std::string& allowed) const {
        throw InputError(source_, pointer_of_(key), value, allowed);
    }

  private:
    const std::string& source_;
    const std::function<std::string(const std::string&)>& pointer_of_;
};

void check_dimensions(const ModelSpec& model, const Checker& check) {
    check.range("layers", model.layers, kLayerLimits);
    check.range("hidden", model.hidden, kHiddenLimits);
    check.range("heads", model.heads, kHeadLimits);
    check.range("kv_heads", model.kv_heads, {1, model.heads});
    check.range("head_dim", model.head_dim, kHeadLimits);
    check.range("ffn_hidden", model.ffn_hidden, kFfnHiddenLimits);
    check.range("vocab", model.vocab, kVocabLimits);
    check.range("max_positions", model.max_positions, kPositionLimits);
    check.range("sliding_window", model.sliding_window, kWindowLimits);
    if (model.heads % model.kv_heads != 0) {
        check.fail("kv_heads", std::to_string(model.kv_heads),
                   "a divisor of the number of heads, " + std::to_string(model.heads));
    }
}

void check_rope_scaling(const ModelSpec::RopeScaling& scaling, const Checker& check) {
    ModelSpec::RopeScaling used;  // with only the values that a scaling of this type has
    used.type = scaling.type;
    if (scaling.type == "linear" || scaling.type == "llama3" || scaling.type == "yarn") {
        used.factor = scaling.factor;
        check.range("rope_scaling/factor", scaling.factor, kFactorLimits);
    } else if (scaling.type != "none") {
        check.fail("rope_scaling/type", in_quotes(scaling.type), "\"none\", \"linear\", \"llama3\", \"yarn\"");
    }
    if (scaling.type == "llama3" || scaling.type == "yarn") {
        used.original_max_positions = scaling.original_max_positions;
    }
    if (scaling.type == "llama3") {
        used.low_frequency_factor = scaling.low_frequency_factor;
        used.high_frequency_factor = scaling.high_frequency_factor;
        check.range("rope_scaling/low_frequency_factor", scaling.low_frequency_factor, kFactorLimits);
        check.range("rope_scaling/high_frequency_factor", scaling.high_frequency_factor, kFactorLimits);
        if (scaling.high_frequency_factor <= scaling.low_frequency_factor) {
            check.fail("rope_scaling/high_frequency_factor", shortest(scaling.high_frequency_factor),
                       "a number greater than low_frequency_factor, " + shortest(scaling.low_frequency_factor));
        }
        check.range("rope_scaling/original_max_positions", scaling.original_max_positions, kPositionLimits);
    }
    if (scaling.type == "yarn") {
        used.beta_fast = scaling.beta_fast;
        used.beta_slow = scaling.beta_slow;
        used.mscale = scaling.mscale;
        used.mscale_all_dim = scaling.mscale_all_dim;
        check.range("rope_scaling/beta_fast", scaling.beta_fast, kFactorLimits);
        check.range("rope_scaling/beta_slow", scaling.beta_slow, kFactorLimits);
        check.range("rope_scaling/mscale", scaling.mscale, kScaleLimits);
        check.range("rope_scaling/mscale_all_dim", scaling.mscale_all_dim, kScaleLimits);
        check.range("rope_scaling/original_max_positions", scaling.original_max_positions, kPositionLimits);
    }
    if (scaling != used) {
        check.fail("rope_scaling/factor", shortest(scaling.factor),
                   "only the values that a scaling of type \"" + scaling.type + "\" has");
    }
}

void check_rotary(const ModelSpec& model, const Checker& check) {
    if (model.position != PositionKind::rotary) {
        const std::string why =
            model.position == PositionKind::learned ? "none: positions are learned" : "none: positions are ALiBi's";
        if (model.rope_scaling != ModelSpec::RopeScaling{}) {
            check.fail("rope_scaling", in_quotes(model.rope_scaling.type), why);
        }
        if (model.rope_theta != ModelSpec{}.rope_theta) check.fail("rope_theta", shortest(model.rope_theta), why);
        if (model.rotary_fraction != 1) check.fail("rotary_fraction", shortest(model.rotary_fraction), why);
        return;
    }
    check.range("rope_theta", model.rope_theta, kThetaLimits);
    check.range("rotary_fraction", model.rotary_fraction, kRotaryFractionLimits);
    const double rotated = model.rotary_fraction * static_cast<double>(model.head_dim);
    if (model.rotary_fraction != 1 && (rotated < 1 || std::fmod(rotated, 2) != 0)) {
        check.fail("rotary_fraction", shortest(model.rotary_fraction),
                   "a fraction that rotates an even number of the " + std::to_string(model.head_dim) +
                       " dimensions of a head");
    }
    // In latent attention only rope_head_dim is rotated.
    if (model.rotary_fraction == 1 && model.head_dim % 2 != 0 && !model.has_latent_attention()) {
        check.fail("head_dim", std::to_string(model.head_dim), "an even number, because positions are rotary");
    }
    check_rope_scaling(model.rope_scaling, check);
}

/// Embeddings, causality and the layout of a block.
void check_layout(const ModelSpec& model, const Checker& check) {
    check.range("token_types", model.token_types, kExtraRowLimits);
    check.range("position_offset", model.position_offset, kExtraRowLimits);
    if (model.position_offset != 0 && model.position != PositionKind::learned) {
        check.fail("position_offset", std::to_string(model.position_offset), "0, unless positions are learned");
    }
    if (!model.causal && model.sliding_window != 0) {
        check.fail("sliding_window", std::to_string(model.sliding_window), "0 when causal is false");
    }
    if (model.shared_input_norm && !model.parallel_residual) {
        check.fail("shared_input_norm", "true", "false, unless parallel_residual is true");
    }
    if (model.post_norm && model.parallel_residual) {
        check.fail("post_norm", "true", "false when parallel_residual is true: its branches have one sum");
    }
}

void check_routing(const MixtureOfExperts& moe, const Checker& check) {
    check.range("moe/top_k", moe.top_k, {1, moe.expert_count});
    check.range("moe/expert_groups", moe.expert_groups, {0, moe.expert_count});
    if (moe.expert_groups == 0) {
        if (moe.top_k_groups != 0) {
            check.fail("moe/top_k_groups", std::to_string(moe.top_k_groups), "0 when expert_groups is 0");
        }
    } else {
        if (moe.expert_count % moe.expert_groups != 0) {
            check.fail("moe/expert_groups", std::to_string(moe.expert_groups),
                       "a divisor of the number of experts, " + std::to_string(moe.expert_count));
        }
        check.range("moe/top_k_groups", moe.top_k_groups, {1, moe.expert_groups});
        const std::int64_t choice = moe.top_k_groups * (moe.expert_count / moe.expert_groups);
        if (moe.top_k > choice) {
            check.fail("moe/top_k", std::to_string(moe.top_k),
                       "at most " + std::to_string(choice) + ", the experts in " + std::to_string(moe.top_k_groups) +
                           " groups");
        }
    }
    check.range("moe/routed_scale", moe.routed_scale, kFactorLimits);
}

void check_experts(const ModelSpec& model, const Checker& check) {
    const MixtureOfExperts& moe = model.moe;
    check.range("moe/expert_count", moe.expert_count, kExpertLimits);
    if (!model.has_experts()) {
        if (moe != MixtureOfExperts{}) check.fail("moe/expert_count", "0", "the number of experts");
        return;
    }
    check_routing(moe, check);
    // Limits all experts of a layer together, so that no count can overflow.
    check.range("moe/expert_ffn_hidden", moe.expert_ffn_hidden, {1, (std::int64_t{1} << 24) / moe.expert_count});
    check.range("moe/shared_ffn_hidden", moe.shared_ffn_hidden, kSharedFfnHiddenLimits);
    check.range("moe/first_dense_layers", moe.first_dense_layers, {0, model.layers - 1});
    check.range("moe/layer_interval", moe.layer_interval, {1, model.layers});
    if (moe.shared_expert_gate && moe.shared_ffn_hidden == 0) {
        check.fail("moe/shared_expert_gate", "true", "false when there is no shared expert");
    }
    if (model.mlp_bias) check.fail("mlp_bias", "true", "false in a model with experts");
}

void check_latent(const ModelSpec& model, const Checker& check) {
    const LatentAttention& latent = model.latent;
    check.range("latent/kv_lora_rank", latent.kv_lora_rank, kRankLimits);
    if (!model.has_latent_attention()) {
        if (latent != LatentAttention{}) {
            check.fail("latent/kv_lora_rank", "0",
                       "a positive rank, since other dimensions of latent attention are given");
        }
        return;
    }
    check.range("latent/q_lora_rank", latent.q_lora_rank, kRankLimits);
    check.range("latent/nope_head_dim", latent.nope_head_dim, kHeadLimits);
    check.range("latent/rope_head_dim", latent.rope_head_dim, kHeadLimits);
    check.range("latent/v_head_dim", latent.v_head_dim, kHeadLimits);
    if (latent.rope_head_dim % 2 != 0) {
        check.fail("latent/rope_head_dim", std::to_string(latent.rope_head_dim), "an even number");
    }
    const std::int64_t head_dim = latent.nope_head_dim + latent.rope_head_dim;
    if (model.head_dim != head_dim) {
        check.fail("head_dim", std::to_string(model.head_dim),
                   std::to_string(head_dim) + ", the sum of nope_head_dim and rope_head_dim");
    }
    if (model.kv_heads != model.heads) {
        check.fail("kv_heads", std::to_string(model.kv_heads),
                   "the number of heads, " + std::to_string(model.heads) + ", in latent attention");
    }
    const std::string without = " in a model with latent attention";
    if (model.position != PositionKind::rotary) {
        check.fail("position", model.position == PositionKind::learned ? "\"learned\"" : "\"alibi\"",
                   "\"rotary\"" + without);
    }
    if (model.rotary_fraction != 1) check.fail("rotary_fraction", shortest(model.rotary_fraction), "1" + without);
    if (model.qkv_bias) check.fail("qkv_bias", "true", "false" + without);
    if (model.attention_output_bias) check.fail("attention_output_bias", "true", "false" + without);
    if (model.qk_norm) check.fail("qk_norm", "true", "false" + without);
    if (model.sliding_window != 0) check.fail("sliding_window", std::to_string(model.sliding_window), "0" + without);
}

}  // namespace

void check_model(const ModelSpec& model, const std::string& source) {
    check_model(model, source, [](const std::string& key) { return "/" + key; });
}

void check_model(const ModelSpec& model, const std::string& source,
                 const std::function<std::string(const std::string&)>& pointer_of) {
    const Checker check(source, pointer_of);
    if (model.name.empty()) check.fail("name", "\"\"", "a name");
    const std::vector<std::string>& families = family_names();
    if (std::find(families.begin(), families.end(), model.family) == families.end()) {
        std::string list;
        for (const std::string& family : families) list += (list.empty() ? "" : ", ") + in_quotes(family);
        check.fail("family", in_quotes(model.family), list);
    }
    check_dimensions(model, check);
    check_latent(model, check);
    check_rotary(model, check);
    check_layout(model, check);
    check_experts(model, check);
    check.range("norm_epsilon", model.norm_epsilon, kNormEpsilonLimits);
}

}  // namespace orrery::models
