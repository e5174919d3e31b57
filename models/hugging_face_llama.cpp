// Configurations of models with RMSNorm and SwiGLU, dense or with experts.
#include <algorithm>

#include "models/hugging_face.h"
#include "models/model_limits.h"

namespace orrery::models {
namespace {

/// True if all layers have full attention, false if all have sliding attention; a mixture is refused.
bool all_layers_full(const JsonReader& reader) {
    const std::vector<std::string> types = reader.strings("layer_types");
    const auto full = std::count(types.begin(), types.end(), "full_attention");
    const auto sliding = std::count(types.begin(), types.end(), "sliding_attention");
    const auto size = static_cast<std::ptrdiff_t>(types.size());
    if (size != 0 && full == size) return true;
    if (size == 0 || sliding != size) {
        reader.fail("layer_types", "\"full_attention\" in every layer, or \"sliding_attention\" in every layer");
    }
    return false;
}

std::int64_t read_sliding_window(const JsonReader& reader, const std::string& family, const ModelSpec& model) {
    // Mistral's window is on unless it is null, and 4096 by default. Mixtral's is on if it is given. Qwen's has a
    // separate switch.
    bool on = family == "mistral" || (family == "mixtral" && given(reader, "sliding_window"));
    if (family == "qwen2" || family == "qwen3") {
        on = reader.boolean_or("use_sliding_window", false);
        if (on && !reader.has("layer_types")) {
            // Layers before this one have full attention.
            const std::int64_t first = reader.integer("max_window_layers", kCount);
            if (first >= model.layers) on = false;
            if (on && first > 0)
                reader.fail("max_window_layers", "0 or the number of layers: all layers must be equal");
        }
    }
    if (family == "qwen2_moe" || family == "qwen3_moe") {
        // Releases of transformers disagree about which layers have the window.
        if (reader.boolean_or("use_sliding_window", false)) reader.fail("use_sliding_window", "false or absent");
    }
    if (reader.has("layer_types")) {
        const bool full = all_layers_full(reader);
        if (!full && !on) reader.fail("layer_types", "\"full_attention\" in every layer, because the window is off");
        if (full) on = false;
    }
    if (!on) {
        if (family == "llama" && given(reader, "sliding_window")) {
            reader.fail("sliding_window", "absent or null in the llama family");
        }
        reader.skip("sliding_window");
        return 0;
    }
    if (family == "mistral" && !reader.has("sliding_window")) return 4096;
    if (family == "mistral" && reader.is_null("sliding_window")) return 0;
    return reader.integer("sliding_window", kPositiveInteger);
}

void read_heads(const JsonReader& reader, const HuggingFaceFamily& family, ModelSpec& model) {
    model.heads = reader.integer("num_attention_heads", kPositiveInteger);
    if (given(reader, "num_key_value_heads")) {
        model.kv_heads = reader.integer("num_key_value_heads", kHeadLimits);
    } else if (family.model_type == "llama" || reader.has("num_key_value_heads")) {
        model.kv_heads = model.heads;
    } else {
        // The default of transformers fits only its default model, so the key is required here.
        model.kv_heads = reader.integer("num_key_value_heads", kPositiveInteger);
    }
    if (given(reader, "head_dim")) {
        model.head_dim = reader.integer("head_dim", kHeadLimits);
        return;
    }
    if (family.model_type == "qwen3" || family.model_type == "qwen3_moe") {
        model.head_dim = reader.integer("head_dim", kPositiveInteger);
    }
    model.head_dim = head_dim_from(reader, family, model);
}

ModelSpec read_llama_like(const JsonReader& reader, const HuggingFaceFamily& family) {
    const std::string& type = family.model_type;
    expect_activation(reader, "hidden_act", {"silu", "swish"});
    ModelSpec model;
    read_size(reader, family, model);
    read_heads(reader, family, model);
    model.ffn_hidden = reader.integer("intermediate_size", kFfnHiddenLimits);
    model.vocab = reader.integer("vocab_size", kVocabLimits);
    model.max_positions = reader.integer("max_position_embeddings", kPositionLimits);
    model.norm_epsilon = reader.number_or("rms_norm_eps", kPositive, type == "mixtral" ? 1e-5 : 1e-6);
    read_rotary(reader, {.theta_default = type == "mixtral" ? 1e6 : 1e4}, model);
    model.sliding_window = read_sliding_window(reader, type, model);
    if (type == "llama" || type == "qwen3" || type == "qwen3_moe") {
        model.qkv_bias = model.attention_output_bias = reader.boolean_or("attention_bias", false);
    }
    if (type == "llama") model.mlp_bias = reader.boolean_or("mlp_bias", false);
    if (type == "qwen2") model.qkv_bias = true;  // fixed in the code; there is no key
    if (type == "qwen2_moe") model.qkv_bias = reader.boolean_or("qkv_bias", true);
    model.qk_norm = type == "qwen3" || type == "qwen3_moe";
    if (type == "qwen3_moe" && !reader.boolean_or("use_qk_norm", true)) {
        reader.fail("use_qk_norm", "true or absent in the qwen3_moe family");
    }
    return model;
}

/// Sets the two fields that state which layers have experts. Refuses `key` if the pattern cannot be expressed.
void set_expert_layers(const JsonReader& reader, const std::string& key, const std::vector<bool>& has_experts,
                       ModelSpec& model) {
    const auto first = std::find(has_experts.begin(), has_experts.end(), true);
    if (first == has_experts.end()) reader.fail(key, "at least one layer with experts");
    const auto second = std::find(first + 1, has_experts.end(), true);
    model.moe.first_dense_layers = first - has_experts.begin();
    model.moe.layer_interval = second - first;  // with a single expert layer, to the end
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
        if (model.is_expert_layer(layer) != has_experts[static_cast<std::size_t>(layer)]) {
            reader.fail(key, "layers with experts at equal intervals, from the first of them to the last layer");
        }
    }
}

ModelSpec read_mixtral(const JsonReader& reader, const HuggingFaceFamily& family) {
    ModelSpec model = read_llama_like(reader, family);
    model.moe.expert_count = reader.integer(name_in(reader, family.keys, "moe/expert_count"), kPositiveInteger);
    model.moe.top_k = reader.integer("num_experts_per_tok", kExpertLimits);
    model.moe.expert_ffn_hidden = model.ffn_hidden;
    if (given(reader, "router_jitter_noise") && !switched_off(reader, "router_jitter_noise")) {
        reader.fail("router_jitter_noise", "0 or absent");
    }
    return model;
}

ModelSpec read_qwen_moe(const JsonReader& reader, const HuggingFaceFamily& family) {
    ModelSpec model = read_llama_like(reader, family);
    MixtureOfExperts& moe = model.moe;
    moe.expert_count = reader.integer(name_in(reader, family.keys, "moe/expert_count"), kPositiveInteger);
    moe.top_k = reader.integer("num_experts_per_tok", kExpertLimits);
    moe.expert_ffn_hidden = reader.integer("moe_intermediate_size", kExpertFfnHiddenLimits);
    moe.normalize_top_k = reader.boolean_or("norm_topk_prob", false);
    if (family.model_type == "qwen2_moe") {
        moe.shared_ffn_hidden = reader.integer("shared_expert_intermediate_size", kPositiveInteger);
        moe.shared_expert_gate = true;
    }
    const std::int64_t step = reader.integer_or("decoder_sparse_step", kPositiveInteger, 1);
    std::vector<bool> has_experts(static_cast<std::size_t>(model.layers));
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
        has_experts[static_cast<std::size_t>(layer)] = (layer + 1) % step == 0;
    }
    std::string key = "decoder_sparse_step";
    if (given(reader, "mlp_only_layers") && reader.size("mlp_only_layers") > 0) {
        key = "mlp_only_layers";
        for (const std::int64_t layer : reader.integers(key, {0, model.layers - 1})) {
            has_experts[static_cast<std::size_t>(layer)] = false;
        }
    }
    set_expert_layers(reader, key, has_experts, model);
    return model;
}

void read_latent(const JsonReader& reader, ModelSpec& model) {
    LatentAttention& latent = model.latent;
    // Null means a query without a latent. For an absent key transformers would use the rank of its default model, so
    // the key is required here.
    const bool none = reader.has("q_lora_rank") && reader.is_null("q_lora_rank");
    latent.q_lora_rank = none ? 0 : reader.integer("q_lora_rank", kPositiveInteger);
    latent.kv_lora_rank = reader.integer("kv_lora_rank", kPositiveInteger);
    latent.nope_head_dim = reader.integer("qk_nope_head_dim", kHeadLimits);
    latent.rope_head_dim = reader.integer("qk_rope_head_dim", kHeadLimits);
    latent.v_head_dim = reader.integer("v_head_dim", kHeadLimits);
    model.head_dim = latent.nope_head_dim + latent.rope_head_dim;
    // Some releases of transformers write these keys, derived from those above.
    for (const char* key : {"head_dim", "qk_head_dim", "rope_interleave"}) reader.skip(key);
}

void read_deepseek_experts(const JsonReader& reader, const HuggingFaceFamily& family, ModelSpec& model) {
    const bool is_v3 = family.model_type == "deepseek_v3";
    MixtureOfExperts& moe = model.moe;
    moe.expert_count = reader.integer(name_in(reader, family.keys, "moe/expert_count"), kPositiveInteger);
    moe.top_k = reader.integer("num_experts_per_tok", kExpertLimits);
    moe.expert_ffn_hidden = reader.integer("moe_intermediate_size", kFfnHiddenLimits);
    const bool shared = !reader.has("n_shared_experts") || !reader.is_null("n_shared_experts");
    moe.shared_ffn_hidden = shared ? reader.integer("n_shared_experts", {0, 1 << 12}) * moe.expert_ffn_hidden : 0;
    moe.normalize_top_k = reader.boolean_or("norm_topk_prob", is_v3);
    moe.routed_scale = reader.number_or("routed_scaling_factor", kPositive, is_v3 ? 2.5 : 1.0);
    moe.sigmoid_scores =
        reader.has("scoring_func") ? reader.choice("scoring_func", {"sigmoid", "softmax"}) == "sigmoid" : is_v3;
    std::string method = is_v3 ? "noaux_tc" : "greedy";
    if (given(reader, "topk_method")) {
        method = reader.choice("topk_method", {"greedy", "group_limited_greedy", "noaux_tc"});
    }
    moe.score_correction_bias = method == "noaux_tc";
    // A single group, or a choice from all groups, is no restriction.
    const std::int64_t groups = given(reader, "n_group") || is_v3 ? reader.integer("n_group", kPositiveInteger) : 1;
    const std::int64_t chosen =
        given(reader, "topk_group") || is_v3 ? reader.integer("topk_group", kPositiveInteger) : groups;
    if (method != "greedy" && groups > 1 && chosen != groups) {
        moe.expert_groups = groups;
        moe.top_k_groups = chosen;
    }
    const std::int64_t dense = reader.integer("first_k_dense_replace", {0, model.layers - 1});
    const std::int64_t interval = reader.integer_or("moe_layer_freq", kPositiveInteger, 1);
    std::vector<bool> has_experts(static_cast<std::size_t>(model.layers));
    for (std::int64_t layer = dense; layer < model.layers; ++layer) {
        has_experts[static_cast<std::size_t>(layer)] = layer % interval == 0;
    }
    set_expert_layers(reader, "moe_layer_freq", has_experts, model);
}

ModelSpec read_deepseek(const JsonReader& reader, const HuggingFaceFamily& family) {
    expect_activation(reader, "hidden_act", {"silu", "swish"});
    ModelSpec model;
    read_size(reader, family, model);
    model.heads = reader.integer("num_attention_heads", kPositiveInteger);
    model.kv_heads = model.heads;
    if (given(reader, "num_key_value_heads")) model.kv_heads = reader.integer("num_key_value_heads", kHeadLimits);
    read_latent(reader, model);
    model.ffn_hidden = reader.integer("intermediate_size", kFfnHiddenLimits);
    model.vocab = reader.integer("vocab_size", kVocabLimits);
    model.max_positions = reader.integer("max_position_embeddings", kPositionLimits);
    model.norm_epsilon = reader.number_or("rms_norm_eps", kPositive, 1e-6);
    for (const char* key : {"attention_bias", "mlp_bias"}) {
        if (reader.boolean_or(key, false)) reader.fail(key, "false or absent in the deepseek families");
    }
    read_rotary(reader, {}, model);
    read_deepseek_experts(reader, family, model);
    return model;
}

}  // namespace

const std::vector<HuggingFaceFamily>& llama_families() {
    static const HuggingFaceKeys dense{{"layers", {"num_hidden_layers"}},
                                       {"hidden", {"hidden_size"}},
                                       {"heads", {"num_attention_heads"}},
                                       {"kv_heads", {"num_key_value_heads"}},
                                       {"ffn_hidden", {"intermediate_size"}},
                                       {"vocab", {"vocab_size"}},
                                       {"max_positions", {"max_position_embeddings"}},
                                       {"norm_epsilon", {"rms_norm_eps"}}};
    const auto with = [](const HuggingFaceKeys& more) {
        HuggingFaceKeys keys = dense;
        keys.insert(more.begin(), more.end());
        return keys;
    };
    static const HuggingFaceKeys mixtral = with({{"moe/expert_count", {"num_local_experts", "num_experts"}},
                                                 {"moe/top_k", {"num_experts_per_tok"}},
                                                 {"moe/expert_ffn_hidden", {"intermediate_size"}}});
    static const HuggingFaceKeys qwen = with({{"moe/expert_count", {"num_experts", "num_local_experts"}},
                                              {"moe/top_k", {"num_experts_per_tok"}},
                                              {"moe/expert_ffn_hidden", {"moe_intermediate_size"}},
                                              {"moe/shared_ffn_hidden", {"shared_expert_intermediate_size"}}});
    static const HuggingFaceKeys deepseek =
        with({{"moe/expert_count", {"n_routed_experts", "num_local_experts", "num_experts"}},
              {"moe/top_k", {"num_experts_per_tok"}},
              {"moe/expert_ffn_hidden", {"moe_intermediate_size"}},
              {"moe/shared_ffn_hidden", {"n_shared_experts"}},
              {"moe/expert_groups", {"n_group"}},
              {"moe/top_k_groups", {"topk_group"}},
              {"moe/routed_scale", {"routed_scaling_factor"}},
              {"moe/first_dense_layers", {"first_k_dense_replace"}},
              {"latent/q_lora_rank", {"q_lora_rank"}},
              {"latent/kv_lora_rank", {"kv_lora_rank"}},
              {"latent/nope_head_dim", {"qk_nope_head_dim"}},
              {"latent/rope_head_dim", {"qk_rope_head_dim"}},
              {"latent/v_head_dim", {"v_head_dim"}},
              {"head_dim", {"qk_nope_head_dim"}}});
    static const std::vector<std::string> mixtral_own{"num_local_experts", "num_experts", "num_experts_per_tok"};
    static const std::vector<std::string> qwen_own{"num_local_experts",     "num_experts",     "num_experts_per_tok",
                                                   "moe_intermediate_size", "mlp_only_layers", "use_qk_norm"};
    static const std::vector<std::string> qwen2_own{"num_local_experts",   "num_experts",
                                                    "num_experts_per_tok", "moe_intermediate_size",
                                                    "mlp_only_layers",     "shared_expert_intermediate_size"};
    static const std::vector<std::string> deepseek_own{"num_local_experts",     "num_experts",
                                                       "n_routed_experts",      "num_experts_per_tok",
                                                       "moe_intermediate_size", "first_k_dense_replace",
                                                       "n_shared_experts",      "kv_lora_rank",
                                                       "q_lora_rank",           "num_nextn_predict_layers"};
    static const std::vector<HuggingFaceFamily> families{
        {"llama", "LlamaForCausalLM", read_llama_like, dense, {}, false},
        {"mistral", "MistralForCausalLM", read_llama_like, dense, {}, false},
        {"qwen2", "Qwen2ForCausalLM", read_llama_like, dense, {}, false},
        {"qwen3", "Qwen3ForCausalLM", read_llama_like, dense, {}, false},
        {"mixtral", "MixtralForCausalLM", read_mixtral, mixtral, mixtral_own, false},
        {"qwen2_moe", "Qwen2MoeForCausalLM", read_qwen_moe, qwen, qwen2_own, false},
        {"qwen3_moe", "Qwen3MoeForCausalLM", read_qwen_moe, qwen, qwen_own, false},
        {"deepseek_v2", "DeepseekV2ForCausalLM", read_deepseek, deepseek, deepseek_own, false},
        {"deepseek_v3", "DeepseekV3ForCausalLM", read_deepseek, deepseek, deepseek_own, false}};
    return families;
}

}  // namespace orrery::models
