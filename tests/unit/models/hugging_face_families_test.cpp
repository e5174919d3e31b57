// Configurations with experts, with latent attention, and of the families related to GPT-2.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "models/model_spec.h"
#include "tests/unit/core/test_folder.h"
#include "tests/unit/models/hugging_face_configs.h"

namespace orrery::models {
namespace {

using nlohmann::ordered_json;

ordered_json llama_like(const char* type, const char* architecture) {
    return {{"architectures", {architecture}}, {"model_type", type},     {"hidden_size", 64},
            {"intermediate_size", 176},        {"num_hidden_layers", 8}, {"num_attention_heads", 4},
            {"num_key_value_heads", 2},        {"head_dim", 16},         {"vocab_size", 128},
            {"max_position_embeddings", 64},   {"hidden_act", "silu"},   {"num_experts_per_tok", 2}};
}
ordered_json mixtral() {
    ordered_json config = llama_like("mixtral", "MixtralForCausalLM");
    config["num_local_experts"] = 8;
    return config;
}
ordered_json qwen3_moe() {
    ordered_json config = llama_like("qwen3_moe", "Qwen3MoeForCausalLM");
    config["num_experts"] = 8;
    config["moe_intermediate_size"] = 48;
    return config;
}
ordered_json qwen2_moe() {
    ordered_json config = llama_like("qwen2_moe", "Qwen2MoeForCausalLM");
    config["num_experts"] = 8;
    config["moe_intermediate_size"] = 48;
    config["shared_expert_intermediate_size"] = 96;
    return config;
}
ordered_json deepseek() {
    ordered_json config = llama_like("deepseek_v3", "DeepseekV3ForCausalLM");
    config.erase("head_dim");
    config.update({{"num_key_value_heads", 4},
                   {"n_routed_experts", 16},
                   {"moe_intermediate_size", 48},
                   {"n_shared_experts", 2},
                   {"first_k_dense_replace", 3},
                   {"n_group", 4},
                   {"topk_group", 2},
                   {"q_lora_rank", 24},
                   {"kv_lora_rank", 12},
                   {"qk_nope_head_dim", 16},
                   {"qk_rope_head_dim", 8},
                   {"v_head_dim", 20}});
    return config;
}
ordered_json gpt_like(const char* type, const char* architecture) {
    return {{"architectures", {architecture}}, {"model_type", type},       {"hidden_size", 64},
            {"num_hidden_layers", 4},          {"num_attention_heads", 4}, {"vocab_size", 128},
            {"max_position_embeddings", 32}};
}
ordered_json neox() {
    ordered_json config = gpt_like("gpt_neox", "GPTNeoXForCausalLM");
    config["intermediate_size"] = 200;
    return config;
}
ordered_json opt() {
    ordered_json config = gpt_like("opt", "OPTForCausalLM");
    config["ffn_dim"] = 200;
    return config;
}
ordered_json bloom() {
    return {{"architectures", {"BloomForCausalLM"}},
            {"model_type", "bloom"},
            {"hidden_size", 64},
            {"n_layer", 4},
            {"n_head", 4},
            {"vocab_size", 128}};
}
ordered_json falcon() {
    return gpt_like("falcon", "FalconForCausalLM");
}
ordered_json bert() {
    ordered_json config = gpt_like("bert", "BertForMaskedLM");
    config["intermediate_size"] = 200;
    return config;
}

/// Whether the configuration is refused with a message that begins with this text, after the file's name.
testing::AssertionResult refused(const ordered_json& config, const std::string& begin) {
    const TestFolder folder;
    std::ofstream(folder.file("config.json")) << config.dump();
    const std::string path = folder.file("config.json");
    const std::string message = message_of<InputError>([&] { (void)read_hugging_face_config(path); });
    if (message.starts_with(path + ": " + begin)) return testing::AssertionSuccess();
    return testing::AssertionFailure() << message;
}
TEST(HuggingFaceExperts, ReadsMixtral) {
    const ModelSpec m = read_config(mixtral());
    EXPECT_EQ(m.moe, (MixtureOfExperts{.expert_count = 8, .top_k = 2, .expert_ffn_hidden = 176}));
    EXPECT_EQ(m.ffn_hidden, 176);
    EXPECT_EQ(m.rope_theta, 1e6);
    EXPECT_EQ(m.norm_epsilon, 1e-5);
    EXPECT_EQ(m.sliding_window, 0);
    EXPECT_EQ(read_config(with(mixtral(), "sliding_window", 16)).sliding_window, 16);
    EXPECT_TRUE(refused(with(mixtral(), "num_experts_per_tok", 9), "/num_experts_per_tok: got 9; allowed: "));
    EXPECT_TRUE(refused(with(mixtral(), "num_local_experts", 0), "/num_local_experts: got 0"));
    EXPECT_TRUE(refused(without(mixtral(), "num_local_experts"), "/num_local_experts: the key is missing"));
    EXPECT_TRUE(refused(with(mixtral(), "router_jitter_noise", 0.1), "/router_jitter_noise: got 0.1"));
    EXPECT_TRUE(refused(with(mixtral(), "n_shared_experts", 1), "/n_shared_experts: got 1"));
}

TEST(HuggingFaceExperts, ReadsQwen) {
    const ModelSpec third = read_config(qwen3_moe());
    EXPECT_EQ(third.moe,
              (MixtureOfExperts{.expert_count = 8, .top_k = 2, .expert_ffn_hidden = 48, .normalize_top_k = false}));
    EXPECT_TRUE(third.qk_norm);
    EXPECT_FALSE(third.qkv_bias);
    EXPECT_TRUE(read_config(with(qwen3_moe(), "norm_topk_prob", true)).moe.normalize_top_k);
    const ModelSpec second = read_config(qwen2_moe());
    EXPECT_EQ(second.moe.shared_ffn_hidden, 96);
    EXPECT_TRUE(second.moe.shared_expert_gate && second.qkv_bias);
    EXPECT_FALSE(second.qk_norm || second.attention_output_bias);
    EXPECT_FALSE(read_config(with(qwen2_moe(), "qkv_bias", false)).qkv_bias);
    EXPECT_TRUE(refused(with(qwen3_moe(), "use_sliding_window", true), "/use_sliding_window: got true"));
    EXPECT_TRUE(
        refused(with(qwen3_moe(), "shared_expert_intermediate_size", 96), "/shared_expert_intermediate_size: "));
    EXPECT_TRUE(refused(with(qwen3_moe(), "moe_intermediate_size", 0), "/moe_intermediate_size: got 0"));
}

// Qwen1.5-MoE-A2.7B: 14.3B parameters, 2.7B of them active.
TEST(HuggingFaceExperts, CountsQwen2Moe) {
    ordered_json config = qwen2_moe();
    config.update({{"hidden_size", 2048},
                   {"intermediate_size", 5632},
                   {"num_hidden_layers", 24},
                   {"num_attention_heads", 16},
                   {"num_key_value_heads", 16},
                   {"head_dim", 128},
                   {"vocab_size", 151936},
                   {"num_experts", 60},
                   {"num_experts_per_tok", 4},
                   {"moe_intermediate_size", 1408},
                   {"shared_expert_intermediate_size", 5632}});
    const ModelSpec m = read_config(config);
    EXPECT_EQ(parameter_count(m), 14315784192);
    EXPECT_NEAR(static_cast<double>(active_parameter_count(m)) / 1e9, 2.7, 0.05);
}

TEST(HuggingFaceExperts, FindsTheExpertLayers) {
    const auto layers = [](const ordered_json& config) {
        const ModelSpec m = read_config(config);
        std::string text;
        for (std::int64_t layer = 0; layer < m.layers; ++layer) text += m.is_expert_layer(layer) ? 'E' : '.';
        return text;
    };
    EXPECT_EQ(layers(qwen3_moe()), "EEEEEEEE");
    EXPECT_EQ(layers(with(qwen3_moe(), "decoder_sparse_step", 2)), ".E.E.E.E");
    EXPECT_EQ(layers(with(qwen3_moe(), "decoder_sparse_step", 3)), "..E..E..");
    EXPECT_EQ(layers(with(qwen3_moe(), "decoder_sparse_step", 8)), ".......E");
    EXPECT_EQ(layers(with(qwen3_moe(), "decoder_sparse_step", 5)), "....E...");
    EXPECT_EQ(layers(with(qwen3_moe(), "mlp_only_layers", {0, 1})), "..EEEEEE");
    EXPECT_EQ(layers(with(qwen3_moe(), "mlp_only_layers", {1, 3, 5, 7})), "E.E.E.E.");
    EXPECT_TRUE(refused(with(qwen3_moe(), "mlp_only_layers", {4}), "/mlp_only_layers: got [4]"));
    EXPECT_TRUE(refused(with(qwen3_moe(), "mlp_only_layers", {8}), "/mlp_only_layers"));
    EXPECT_TRUE(refused(with(qwen3_moe(), "decoder_sparse_step", 9), "/decoder_sparse_step: got 9"));
    EXPECT_EQ(layers(deepseek()), "...EEEEE");
    EXPECT_EQ(layers(with(deepseek(), "moe_layer_freq", 2)), "....E.E.");
    EXPECT_EQ(layers(with(deepseek(), "first_k_dense_replace", 0)), "EEEEEEEE");
    EXPECT_TRUE(refused(with(deepseek(), "first_k_dense_replace", 8), "/first_k_dense_replace: got 8"));
}

TEST(HuggingFaceDeepSeek, ReadsExpertsAndLatents) {
    EXPECT_TRUE(refused(with(deepseek(), "num_nextn_predict_layers", 1),
                        "/num_nextn_predict_layers: got 1; allowed: 0: layers that predict further tokens are not "
                        "modelled; --text-only leaves them out"));
    const ModelSpec m = read_config(with(deepseek(), "num_nextn_predict_layers", 1), ModelParts::text_only);
    EXPECT_EQ(m.left_out, (std::vector<std::string>{"num_nextn_predict_layers: 1 (layers that predict further tokens "
                                                    "are not modelled)"}));
    EXPECT_EQ(m.left_out_prediction_layers, 1);
    const ModelSpec none = read_config(with(deepseek(), "num_nextn_predict_layers", 0));
    EXPECT_TRUE(none.left_out.empty());
    EXPECT_EQ(none.left_out_prediction_layers, 0);
    EXPECT_THROW((void)read_config(with(deepseek(), "num_nextn_predict_layers", 65), ModelParts::text_only),
                 InputError);
    EXPECT_THROW((void)read_config(with(deepseek(), "num_nextn_predict_layers", "one"), ModelParts::text_only),
                 InputError);
    EXPECT_EQ(m.latent, (LatentAttention{24, 12, 16, 8, 20}));
    EXPECT_EQ(m.head_dim, 24);
    EXPECT_EQ(m.attention_out_width(), 80);
    const MixtureOfExperts expected{.expert_count = 16,
                                    .top_k = 2,
                                    .expert_ffn_hidden = 48,
                                    .shared_ffn_hidden = 96,
                                    .first_dense_layers = 3,
                                    .score_correction_bias = true,
                                    .expert_groups = 4,
                                    .top_k_groups = 2,
                                    .sigmoid_scores = true,
                                    .routed_scale = 2.5};
    EXPECT_EQ(m.moe, expected);
    EXPECT_EQ(read_config(with(deepseek(), "q_lora_rank", nullptr)).latent.q_lora_rank, 0);
    EXPECT_EQ(read_config(with(deepseek(), "n_shared_experts", nullptr)).moe.shared_ffn_hidden, 0);
    EXPECT_EQ(read_config(with(deepseek(), "topk_group", 4)).moe.expert_groups, 0);  // no restriction
    EXPECT_EQ(read_config(with(deepseek(), "model_type", "kimi_k2")).family, "deepseek_v3");

    EXPECT_TRUE(refused(without(deepseek(), "q_lora_rank"), "/q_lora_rank: the key is missing"));
    EXPECT_TRUE(refused(with(deepseek(), "num_key_value_heads", 2), "/num_key_value_heads: got 2"));
    EXPECT_TRUE(refused(with(deepseek(), "qk_rope_head_dim", 7), "/qk_rope_head_dim: got 7"));
    EXPECT_TRUE(refused(with(deepseek(), "v_head_dim", 0), "/v_head_dim: got 0"));
    EXPECT_TRUE(refused(with(deepseek(), "n_group", 3), "/n_group: got 3"));
    EXPECT_TRUE(refused(with(deepseek(), "topk_group", 5), "/topk_group: got 5"));
    EXPECT_TRUE(refused(with(deepseek(), "num_experts_per_tok", 9), "/num_experts_per_tok: got 9"));
    EXPECT_TRUE(refused(with(deepseek(), "attention_bias", true), "/attention_bias: got true"));
    EXPECT_TRUE(refused(with(deepseek(), "scoring_func", "tanh"), "/scoring_func: got \"tanh\""));
}

// DeepSeek-V2-Lite and V2, whose checkpoints have 15,706,484,224 and 235,741,434,880 parameters.
TEST(HuggingFaceDeepSeek, CountsTheSecondVersion) {
    ordered_json lite = with(deepseek(), "model_type", "deepseek_v2");
    lite["architectures"] = {"DeepseekV2ForCausalLM"};
    lite.update({{"hidden_size", 2048},
                 {"intermediate_size", 10944},
                 {"num_hidden_layers", 27},
                 {"num_attention_heads", 16},
                 {"num_key_value_heads", 16},
                 {"vocab_size", 102400},
                 {"n_routed_experts", 64},
                 {"num_experts_per_tok", 6},
                 {"moe_intermediate_size", 1408},
                 {"first_k_dense_replace", 1},
                 {"n_group", 1},
                 {"topk_group", 1},
                 {"topk_method", "greedy"},
                 {"scoring_func", "softmax"},
                 {"q_lora_rank", nullptr},
                 {"kv_lora_rank", 512},
                 {"qk_nope_head_dim", 128},
                 {"qk_rope_head_dim", 64},
                 {"v_head_dim", 128}});
    const ModelSpec m = read_config(lite);
    EXPECT_EQ(parameter_count(m), 15706484224);
    EXPECT_FALSE(m.moe.score_correction_bias || m.moe.sigmoid_scores || m.moe.normalize_top_k);
    EXPECT_EQ(m.moe.routed_scale, 1.0);
    ordered_json large = lite;
    large.update({{"hidden_size", 5120},
                  {"intermediate_size", 12288},
                  {"num_hidden_layers", 60},
                  {"num_attention_heads", 128},
                  {"num_key_value_heads", 128},
                  {"n_routed_experts", 160},
                  {"moe_intermediate_size", 1536},
                  {"q_lora_rank", 1536},
                  {"n_group", 8},
                  {"topk_group", 3},
                  {"topk_method", "group_limited_greedy"}});
    EXPECT_EQ(parameter_count(read_config(large)), 235741434880);
    EXPECT_EQ(read_config(large).moe.top_k_groups, 3);
}

TEST(HuggingFaceGpt, ReadsNeoX) {
    const ModelSpec m = read_config(neox());
    EXPECT_TRUE(m.parallel_residual && m.qkv_bias && m.attention_output_bias && m.mlp_bias);
    EXPECT_FALSE(m.shared_input_norm || m.tied_embeddings);
    EXPECT_EQ(m.position, PositionKind::rotary);
    EXPECT_EQ(m.rotary_fraction, 0.25);
    EXPECT_EQ(m.ffn_hidden, 200);
    EXPECT_FALSE(read_config(with(neox(), "use_parallel_residual", false)).parallel_residual);
    EXPECT_EQ(read_config(with(neox(), "rotary_pct", 1.0)).rotary_fraction, 1);
    EXPECT_EQ(read_config(with(neox(), "rotary_emb_base", 5000)).rope_theta, 5000);
    const ModelSpec unbiased = read_config(with(neox(), "attention_bias", false));
    EXPECT_TRUE(!unbiased.qkv_bias && !unbiased.attention_output_bias && unbiased.mlp_bias);
    const ordered_json parameters = {{"rope_type", "default"}, {"rope_theta", 2e4}, {"partial_rotary_factor", 0.5}};
    const ModelSpec fifth = read_config(with(neox(), "rope_parameters", parameters));
    EXPECT_EQ(fifth.rotary_fraction, 0.5);
    EXPECT_EQ(fifth.rope_theta, 2e4);
    EXPECT_TRUE(refused(with(neox(), "rotary_pct", 0.2), "/rotary_pct: got 0.2"));
    EXPECT_TRUE(refused(with(neox(), "rotary_pct", 0), "/rotary_pct: got 0"));
    EXPECT_TRUE(refused(with(neox(), "hidden_act", "silu"), "/hidden_act: got \"silu\""));
    EXPECT_TRUE(refused(with(neox(), "num_attention_heads", 5), "/num_attention_heads: got 5"));
    EXPECT_TRUE(
        refused(with(with(neox(), "rope_parameters", parameters), "rotary_pct", 0.25), "/rotary_pct: got 0.25"));
}

TEST(HuggingFaceGpt, ReadsOpt) {
    const ModelSpec m = read_config(opt());
    EXPECT_EQ(m.mlp, MlpKind::relu);
    EXPECT_EQ(m.position, PositionKind::learned);
    EXPECT_EQ(m.position_offset, 2);
    EXPECT_TRUE(m.qkv_bias && m.mlp_bias && m.tied_embeddings && m.final_norm && !m.post_norm);
    EXPECT_EQ(m.norm_epsilon, 1e-5);
    const ModelSpec post = read_config(with(opt(), "do_layer_norm_before", false));
    EXPECT_TRUE(post.post_norm && !post.final_norm);
    EXPECT_FALSE(read_config(with(opt(), "_remove_final_layer_norm", true)).final_norm);
    EXPECT_FALSE(read_config(with(opt(), "enable_bias", false)).mlp_bias);
    EXPECT_EQ(read_config(with(opt(), "activation_function", "gelu")).mlp, MlpKind::gelu);
    (void)read_config(with(opt(), "word_embed_proj_dim", 64));
    EXPECT_TRUE(
        refused(with(opt(), "word_embed_proj_dim", 32), "/word_embed_proj_dim: got 32; allowed: hidden_size, 64"));
    EXPECT_TRUE(refused(with(opt(), "layer_norm_elementwise_affine", false), "/layer_norm_elementwise_affine: got "));
    EXPECT_TRUE(refused(with(opt(), "ffn_dim", 0), "/ffn_dim: got 0"));
}

TEST(HuggingFaceGpt, ReadsBloom) {
    const ModelSpec m = read_config(bloom());
    EXPECT_EQ(m.position, PositionKind::alibi);
    EXPECT_TRUE(m.embedding_norm && m.final_norm && m.tied_embeddings && m.mlp_bias);
    EXPECT_EQ(m.ffn_hidden, 256);
    EXPECT_EQ(m.max_positions, 2048);
    EXPECT_EQ(read_config(with(bloom(), "seq_length", 512)).max_positions, 512);
    // With the key names of the first release.
    ordered_json old = without(without(bloom(), "hidden_size"), "n_head");
    old["n_embed"] = 64;
    old["num_attention_heads"] = 4;
    EXPECT_EQ(parameter_count(read_config(old)), parameter_count(m));
    EXPECT_TRUE(refused(with(bloom(), "n_embed", 32), "/n_embed: got 32; allowed: the same as /hidden_size"));
    EXPECT_TRUE(refused(with(bloom(), "apply_residual_connection_post_layernorm", true),
                        "/apply_residual_connection_post_layernorm: got true"));
    EXPECT_TRUE(refused(without(bloom(), "n_layer"), "/n_layer: the key is missing"));
}

TEST(HuggingFaceGpt, ReadsTheVariantsOfFalcon) {
    const ModelSpec seven = read_config(falcon());  // like the 7B: one norm, one key/value head
    EXPECT_EQ(seven.kv_heads, 1);
    EXPECT_TRUE(seven.parallel_residual && seven.shared_input_norm && seven.tied_embeddings);
    EXPECT_FALSE(seven.qkv_bias || seven.mlp_bias);
    EXPECT_EQ(seven.position, PositionKind::rotary);
    EXPECT_EQ(seven.ffn_hidden, 256);
    const ordered_json newer = with(with(falcon(), "new_decoder_architecture", true), "num_kv_heads", 2);
    EXPECT_EQ(read_config(newer).kv_heads, 2);
    EXPECT_FALSE(read_config(newer).shared_input_norm);  // two norms, like the 40B
    EXPECT_TRUE(read_config(with(newer, "num_ln_in_parallel_attn", 1)).shared_input_norm);
    EXPECT_FALSE(read_config(with(newer, "num_ln_in_parallel_attn", nullptr)).shared_input_norm);
    EXPECT_EQ(read_config(with(with(falcon(), "new_decoder_architecture", true), "n_head_kv", 2)).kv_heads, 2);
    EXPECT_EQ(read_config(without(newer, "num_kv_heads")).kv_heads, 4);
    EXPECT_EQ(read_config(with(falcon(), "multi_query", false)).kv_heads, 4);
    EXPECT_EQ(read_config(with(falcon(), "ffn_hidden_size", 100)).ffn_hidden, 100);
    // Like Falcon-RW: sequential, ALiBi, biases.
    const ModelSpec rw = read_config(with(with(with(falcon(), "parallel_attn", false), "alibi", true), "bias", true));
    EXPECT_FALSE(rw.parallel_residual || rw.shared_input_norm);
    EXPECT_EQ(rw.position, PositionKind::alibi);
    EXPECT_TRUE(rw.qkv_bias && rw.attention_output_bias && rw.mlp_bias);
    EXPECT_TRUE(refused(with(newer, "parallel_attn", false), "/parallel_attn: got false"));
    EXPECT_TRUE(refused(with(newer, "num_kv_heads", 3), "/num_kv_heads: got 3"));
    EXPECT_TRUE(refused(with(falcon(), "num_ln_in_parallel_attn", 2), "/num_ln_in_parallel_attn: got 2"));
    EXPECT_TRUE(refused(with(newer, "num_ln_in_parallel_attn", 3), "/num_ln_in_parallel_attn: got 3"));
}

TEST(HuggingFaceGpt, ReadsBert) {
    const ModelSpec m = read_config(bert());
    EXPECT_TRUE(!m.causal && m.post_norm && !m.final_norm && m.embedding_norm && m.tied_embeddings);
    EXPECT_TRUE(m.head_transform && m.head_bias && !m.pooler);
    EXPECT_EQ(m.token_types, 2);
    EXPECT_EQ(m.norm_epsilon, 1e-12);
    EXPECT_EQ(read_config(with(bert(), "type_vocab_size", 1)).token_types, 1);
    EXPECT_EQ(read_config(with(bert(), "hidden_act", "relu")).mlp, MlpKind::relu);
    EXPECT_TRUE(refused(with(bert(), "is_decoder", true), "/is_decoder: got true"));
    EXPECT_TRUE(refused(with(bert(), "position_embedding_type", "relative_key"), "/position_embedding_type: got "));
    EXPECT_TRUE(refused(with(bert(), "architectures", {"BertForPreTraining"}),
                        "/architectures: got [\"BertForPreTraining\"]; allowed: [\"BertForMaskedLM\"]"));
    EXPECT_TRUE(refused(with(bert(), "type_vocab_size", -1), "/type_vocab_size: got -1"));
}

TEST(HuggingFaceGpt, RefusesKeysOfOtherFamilies) {
    EXPECT_TRUE(refused(with(opt(), "alibi", true), "/alibi: got true"));
    EXPECT_TRUE(refused(with(bert(), "num_experts", 4), "/num_experts: got 4"));
    EXPECT_TRUE(refused(with(bloom(), "multi_query", true), "/multi_query: got true"));
    EXPECT_TRUE(refused(with(falcon(), "rotary_pct", 0.5), "/rotary_pct: got 0.5"));
    EXPECT_TRUE(refused(with(qwen3_moe(), "num_nextn_predict_layers", 1), "/num_nextn_predict_layers: got 1"));
}

}  // namespace
}  // namespace orrery::models
