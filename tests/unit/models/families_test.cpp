// Parameters, FLOPs, checks and JSON of models that are not plain dense decoders.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "core/error.h"
#include "models/model_spec.h"
#include "tests/unit/core/test_folder.h"

namespace orrery::models {
namespace {

struct PublishedFamily {
    const char* name;
    double billions, active;  // to three decimals
};
class FamilyCounts : public testing::TestWithParam<PublishedFamily> {};
TEST_P(FamilyCounts, EqualThePublishedFigures) {
    const ModelSpec m = load_model(GetParam().name);
    EXPECT_NEAR(static_cast<double>(parameter_count(m)) / 1e9, GetParam().billions, 0.0005);
    EXPECT_NEAR(static_cast<double>(active_parameter_count(m)) / 1e9, GetParam().active, 0.0005);
}
// Totals are those of the model cards' checkpoints. Active parameters: arXiv 2401.04088 states 13B of 47B, the Mixtral
// 8x22B announcement 39B of 141B, the Qwen3 report 3.3B and 22B, arXiv 2412.19437 37B of 671B, the Kimi K2 card 32B of
// 1T; the further decimals are computed from the configurations.
INSTANTIATE_TEST_SUITE_P(
    All, FamilyCounts,
    testing::Values(PublishedFamily{"mixtral-8x7b", 46.703, 12.880}, PublishedFamily{"mixtral-8x22b", 140.621, 39.152},
                    PublishedFamily{"qwen3-30b-a3b", 30.532, 3.353},
                    PublishedFamily{"qwen3-235b-a22b", 235.094, 22.191},
                    PublishedFamily{"deepseek-v3", 671.026, 37.552}, PublishedFamily{"kimi-k2", 1026.408, 32.861},
                    PublishedFamily{"gpt-neox-20b", 20.555, 20.555}, PublishedFamily{"opt-1.3b", 1.316, 1.316},
                    PublishedFamily{"opt-6.7b", 6.658, 6.658}, PublishedFamily{"opt-13b", 12.853, 12.853},
                    PublishedFamily{"opt-30b", 29.975, 29.975}, PublishedFamily{"opt-175b", 174.604, 174.604},
                    PublishedFamily{"bloom-176b", 176.247, 176.247}, PublishedFamily{"falcon-40b", 41.303, 41.303},
                    PublishedFamily{"falcon-7b", 6.922, 6.922}, PublishedFamily{"bert-base", .110, .110},
                    PublishedFamily{"bert-large", .335, .335}));

// The closed forms of the families with 12 h^2 + 13 h parameters a layer.
TEST(FamilyParameters, FollowTheClosedFormsOfModelsWithBiases) {
    for (const char* name : {"gpt-neox-20b", "opt-175b", "opt-66b", "bloom-176b"}) {
        const ModelSpec m = load_model(name);
        const std::int64_t h = m.hidden, v = m.vocab, layers = m.layers * (12 * h * h + 13 * h);
        std::int64_t around = 0;
        if (m.family == "gpt_neox") around = 2 * v * h + 2 * h;          // untied, rotary
        if (m.family == "opt") around = v * h + (2048 + 2) * h + 2 * h;  // two rows before position 0
        if (m.family == "bloom") around = v * h + 2 * h + 2 * h;         // two norms, ALiBi
        EXPECT_EQ(parameter_count(m), layers + around) << name;
    }
}

TEST(FamilyParameters, OfBertCountItsHeadOrItsPooler) {
    ModelSpec m = load_model("bert-large");
    const std::int64_t h = 1024, encoder = 24 * (12 * h * h + 13 * h), embedding = (30522 + 512 + 2 + 2) * h;
    const std::int64_t transform = h * h + h + 2 * h;
    EXPECT_EQ(parameter_count(m), embedding + encoder + transform + 30522);
    // BertModel: 335,141,888 in the published checkpoint.
    m.head_transform = m.head_bias = false;
    m.pooler = true;
    EXPECT_EQ(parameter_count(m), 335141888);
    m = load_model("bert-base");
    m.head_transform = m.head_bias = false;
    m.pooler = true;
    EXPECT_EQ(parameter_count(m), 109482240);
}

TEST(FamilyParameters, OfGrokEqualItsMatrices) {
    const ModelSpec m = load_model("grok-1");
    const std::int64_t h = 6144, experts = 8 * 3 * h * 32768 + 8 * h, attention = h * 128 * (48 + 8 + 8 + 48);
    EXPECT_EQ(parameter_count(m), 64 * (experts + attention + 2 * h) + 131072 * h + h);
    EXPECT_NEAR(static_cast<double>(parameter_count(m)) / 314e9, 1, 0.01);  // "314B"
}

// One expert layer more or less changes the count by exactly the sum of its parts.
TEST(FamilyParameters, CountDenseAndExpertLayersSeparately) {
    ModelSpec m = load_model("deepseek-v3");
    const std::int64_t h = 7168, dense = 3 * h * 18432, one = 3 * h * 2048, routed = 256 * one + one + 256 * h;
    const std::int64_t total = parameter_count(m);
    m.moe.first_dense_layers = 5;
    EXPECT_EQ(total - parameter_count(m), 2 * (routed - dense));
    m.moe.layer_interval = 7;  // layers 5, 12, …, 54: eight of them
    EXPECT_EQ(total - parameter_count(m), 50 * (routed - dense));
    EXPECT_EQ(parameter_count(m) - active_parameter_count(m), 8 * 248 * one);
    m.moe.shared_expert_gate = true;
    EXPECT_EQ(total - parameter_count(m), 50 * (routed - dense) - 8 * h);
    // Without the query latent and its norm, the query is one product.
    m = load_model("deepseek-v3");
    m.latent.q_lora_rank = 0;
    EXPECT_EQ(total - parameter_count(m), 61 * (1536 * (h + 128 * 192) + 1536 - h * 128 * 192));
}

// Per layer: top_k * 6 s h f_e + 6 s h f_shared + 2 s h E.
TEST(FamilyFlops, OfExpertsCountTheActiveOnes) {
    const double s = 4096;
    for (const char* name : {"mixtral-8x7b", "qwen3-30b-a3b"}) {
        const ModelSpec m = load_model(name);
        const auto h = static_cast<double>(m.hidden), q = static_cast<double>(m.q_width());
        const auto layers = static_cast<double>(m.layers), kv = static_cast<double>(m.kv_width());
        const double experts =
            static_cast<double>(m.moe.top_k) * 6 * s * h * static_cast<double>(m.moe.expert_ffn_hidden) +
            2 * s * h * static_cast<double>(m.moe.expert_count);
        const double projections = 2 * s * (h * q + 2 * h * kv + q * h);
        const double head = 2 * s * h * static_cast<double>(m.vocab);
        const auto closed = [&](double core) { return 3 * (layers * (projections + core + experts) + head); };
        EXPECT_DOUBLE_EQ(model_flops_per_sequence(m, 4096, FlopsConvention::full_attention), closed(4 * s * s * q));
        EXPECT_DOUBLE_EQ(model_flops_per_sequence(m, 4096, FlopsConvention::causal_half), closed(2 * s * s * q));
        const double n = static_cast<double>(active_parameter_count(m)) - static_cast<double>(m.vocab) * h;
        EXPECT_DOUBLE_EQ(model_flops_per_sequence(m, 4096, FlopsConvention::palm), s * (6 * n + 12 * layers * q * s));
    }
}

TEST(FamilyFlops, OfLatentAttentionHaveTwoWidths) {
    const ModelSpec m = load_model("deepseek-v3");
    const double s = 4096, h = 7168, a = 128;
    const double projections =
        2 * s * (h * 1536 + 1536 * a * 192 + h * (512 + 64) + 512 * a * (128 + 128) + a * 128 * h);
    const double dense = 6 * s * h * 18432, experts = (8 + 1) * 6 * s * h * 2048 + 2 * s * h * 256;
    const double head = 2 * s * h * 129280;
    const auto closed = [&](double pairs) {
        const double core = 2 * pairs * a * 192 + 2 * pairs * a * 128;
        return 3 * (61 * (projections + core) + 3 * dense + 58 * experts + head);
    };
    EXPECT_DOUBLE_EQ(model_flops_per_sequence(m, 4096, FlopsConvention::full_attention), closed(s * s));
    EXPECT_DOUBLE_EQ(model_flops_per_sequence(m, 4096, FlopsConvention::causal_half), closed(s * s / 2));
    const double n = static_cast<double>(active_parameter_count(m)) - 129280 * h;
    EXPECT_DOUBLE_EQ(model_flops_per_sequence(m, 4096, FlopsConvention::palm), s * (6 * n + 6 * 61 * a * 320 * s));
}

TEST(FamilyFlops, OfBidirectionalAttentionAreNeverHalved) {
    ModelSpec m = load_model("bert-large");
    const double s = 512, h = 1024;
    const double closed = 3 * (24 * (24 * s * h * h + 4 * s * s * h) + 2 * s * h * (h + 30522));
    EXPECT_DOUBLE_EQ(model_flops_per_sequence(m, 512, FlopsConvention::full_attention), closed);
    EXPECT_DOUBLE_EQ(model_flops_per_sequence(m, 512, FlopsConvention::causal_half), closed);
    const double palm = model_flops_per_sequence(m, 512, FlopsConvention::palm);
    m.pooler = true;
    EXPECT_EQ(model_flops_per_sequence(m, 512, FlopsConvention::palm), palm);
    m.causal = true;
    EXPECT_DOUBLE_EQ(model_flops_per_sequence(m, 512, FlopsConvention::causal_half), closed - 3 * 24 * 2 * s * s * h);
}

// Megatron's closed form for GPT. ReLU, ALiBi and parallel branches do not change the products.
TEST(FamilyFlops, OfModelsWithoutAGateFollowTheClosedFormOfGpt) {
    for (const char* name : {"opt-175b", "bloom-176b", "gpt-neox-20b"}) {
        const ModelSpec m = load_model(name);
        const double s = 2048;
        const auto h = static_cast<double>(m.hidden), layers = static_cast<double>(m.layers);
        const double closed =
            72 * layers * s * h * h * (1 + s / (6 * h) + static_cast<double>(m.vocab) / (12 * h * layers));
        EXPECT_NEAR(model_flops_per_sequence(m, 2048, FlopsConvention::full_attention) / closed, 1, 1e-12) << name;
    }
}

// For any model, matrices cost 6 FLOPs a parameter and token; the core of attention is added.
TEST(FamilyFlops, AreSixForEachWeightAndToken) {
    std::mt19937_64 random(20240611);
    const auto pick = [&](std::int64_t low, std::int64_t high) {
        return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
    };
    for (int round = 0; round < 200; ++round) {
        ModelSpec m = load_model("tiny-llama");
        m.layers = pick(1, 9);
        m.hidden = 8 * pick(1, 40);
        m.mlp = std::array{MlpKind::gelu, MlpKind::swiglu, MlpKind::relu}[static_cast<std::size_t>(pick(0, 2))];
        m.ffn_hidden = pick(1, 500);
        m.causal = pick(0, 1) == 1;
        m.head_transform = pick(0, 1) == 1;
        m.moe.expert_count = pick(0, 1) * pick(1, 16);
        if (m.has_experts()) {
            m.moe.top_k = pick(1, m.moe.expert_count);
            m.moe.expert_ffn_hidden = pick(1, 300);
            m.moe.shared_ffn_hidden = pick(0, 1) * pick(1, 300);
            m.moe.shared_expert_gate = m.moe.shared_ffn_hidden > 0 && pick(0, 1) == 1;
            m.moe.first_dense_layers = pick(0, m.layers - 1);
            m.moe.layer_interval = pick(1, m.layers);
        }
        if (pick(0, 1) == 1) {
            m.latent = {pick(0, 50), pick(1, 50), pick(1, 20), 2 * pick(1, 10), pick(1, 20)};
            m.head_dim = m.latent.nope_head_dim + m.latent.rope_head_dim;
            m.kv_heads = m.heads;
        }
        check_model(m, "random");
        EXPECT_EQ(model_from_json_text(to_json_text(m), "random"), m);
        // Norms, biases and the embedding lookup are not products.
        std::int64_t others = m.layers * 2 * m.hidden + m.hidden + (m.head_transform ? 2 * m.hidden : 0);
        if (m.has_latent_attention()) others += m.layers * (m.latent.q_lora_rank + m.latent.kv_lora_rank);
        others += m.vocab * m.hidden;
        const std::int64_t weights = active_parameter_count(m) - others;
        const double s = 32;
        const double pairs = m.causal ? s * s / 2 : s * s;
        const double core = 6 * pairs * static_cast<double>(m.layers * (m.q_width() + m.attention_out_width()));
        EXPECT_DOUBLE_EQ(model_flops_per_sequence(m, 32, FlopsConvention::causal_half),
                         6 * s * static_cast<double>(weights) + core)
            << to_json_text(m);
    }
}

struct BadFamily {
    const char* key;
    void (*spoil)(ModelSpec&);
    const char* base = "tiny-llama";
};
class CheckFamily : public testing::TestWithParam<BadFamily> {};
TEST_P(CheckFamily, RefusesAndNamesTheKey) {
    ModelSpec model = load_model(GetParam().base);
    check_model(model, "good");
    GetParam().spoil(model);
    const std::string message = message_of<InputError>([&] { check_model(model, "changed"); });
    EXPECT_EQ(message.find(std::string("changed: /") + GetParam().key + ": got "), 0U) << message;
    EXPECT_NE(message.find("allowed: "), std::string::npos) << message;
}
constexpr const char* kMixtral = "mixtral-8x7b";
constexpr const char* kDeepseek = "deepseek-v3";
INSTANTIATE_TEST_SUITE_P(
    Experts, CheckFamily,
    testing::Values(
        BadFamily{"moe/expert_count", [](ModelSpec& m) { m.moe.expert_count = -1; }},
        BadFamily{"moe/expert_count", [](ModelSpec& m) { m.moe.expert_count = 5000; }},
        BadFamily{"moe/expert_count", [](ModelSpec& m) { m.moe.top_k = 2; }},
        BadFamily{"moe/top_k", [](ModelSpec& m) { m.moe.top_k = 9; }, kMixtral},
        BadFamily{"moe/top_k", [](ModelSpec& m) { m.moe.top_k = 0; }, kMixtral},
        BadFamily{"moe/expert_ffn_hidden", [](ModelSpec& m) { m.moe.expert_ffn_hidden = 0; }, kMixtral},
        BadFamily{"moe/expert_ffn_hidden", [](ModelSpec& m) { m.moe.expert_ffn_hidden = 1 << 22; }, kMixtral},
        BadFamily{"moe/shared_ffn_hidden", [](ModelSpec& m) { m.moe.shared_ffn_hidden = -1; }, kMixtral},
        BadFamily{"moe/first_dense_layers", [](ModelSpec& m) { m.moe.first_dense_layers = 32; }, kMixtral},
        BadFamily{"moe/layer_interval", [](ModelSpec& m) { m.moe.layer_interval = 0; }, kMixtral},
        BadFamily{"moe/shared_expert_gate", [](ModelSpec& m) { m.moe.shared_expert_gate = true; }, kMixtral},
        BadFamily{"moe/expert_groups", [](ModelSpec& m) { m.moe.expert_groups = 3; }, kMixtral},
        BadFamily{"moe/top_k_groups", [](ModelSpec& m) { m.moe.top_k_groups = 1; }, kMixtral},
        BadFamily{"moe/top_k_groups", [](ModelSpec& m) { m.moe.top_k_groups = 9; }, kDeepseek},
        BadFamily{"moe/top_k", [](ModelSpec& m) { m.moe.top_k = 129; }, kDeepseek},
        BadFamily{"moe/routed_scale", [](ModelSpec& m) { m.moe.routed_scale = std::nan(""); }, kDeepseek},
        BadFamily{"mlp_bias", [](ModelSpec& m) { m.mlp_bias = true; }, kMixtral}));
INSTANTIATE_TEST_SUITE_P(
    Latent, CheckFamily,
    testing::Values(BadFamily{"latent/kv_lora_rank", [](ModelSpec& m) { m.latent.kv_lora_rank = -1; }},
                    BadFamily{"latent/kv_lora_rank", [](ModelSpec& m) { m.latent.v_head_dim = 64; }},
                    BadFamily{"latent/nope_head_dim", [](ModelSpec& m) { m.latent.kv_lora_rank = 8; }},
                    BadFamily{"latent/q_lora_rank", [](ModelSpec& m) { m.latent.q_lora_rank = -1; }, kDeepseek},
                    BadFamily{"latent/v_head_dim", [](ModelSpec& m) { m.latent.v_head_dim = 0; }, kDeepseek},
                    BadFamily{"latent/rope_head_dim", [](ModelSpec& m) { m.latent.rope_head_dim = 63; }, kDeepseek},
                    BadFamily{"head_dim", [](ModelSpec& m) { m.head_dim = 128; }, kDeepseek},
                    BadFamily{"kv_heads", [](ModelSpec& m) { m.kv_heads = 64; }, kDeepseek},
                    BadFamily{"position", [](ModelSpec& m) { m.position = PositionKind::alibi; }, kDeepseek},
                    BadFamily{"qkv_bias", [](ModelSpec& m) { m.qkv_bias = true; }, kDeepseek},
                    BadFamily{"qk_norm", [](ModelSpec& m) { m.qk_norm = true; }, kDeepseek},
                    BadFamily{"sliding_window", [](ModelSpec& m) { m.sliding_window = 9; }, kDeepseek}));
INSTANTIATE_TEST_SUITE_P(
    Layout, CheckFamily,
    testing::Values(BadFamily{"rotary_fraction", [](ModelSpec& m) { m.rotary_fraction = 0; }},
                    BadFamily{"rotary_fraction", [](ModelSpec& m) { m.rotary_fraction = 1.5; }},
                    BadFamily{"rotary_fraction", [](ModelSpec& m) { m.rotary_fraction = 0.3; }},
                    BadFamily{"rotary_fraction", [](ModelSpec& m) { m.rotary_fraction = 0.5; }, "gpt2"},
                    BadFamily{"position_offset", [](ModelSpec& m) { m.position_offset = 2; }},
                    BadFamily{"position_offset", [](ModelSpec& m) { m.position_offset = -1; }, "gpt2"},
                    BadFamily{"token_types", [](ModelSpec& m) { m.token_types = -1; }},
                    BadFamily{"sliding_window", [](ModelSpec& m) { m.sliding_window = 9; }, "bert-base"},
                    BadFamily{"shared_input_norm", [](ModelSpec& m) { m.shared_input_norm = true; }},
                    BadFamily{"post_norm", [](ModelSpec& m) { m.post_norm = true; }, "gpt-neox-20b"},
                    BadFamily{"rope_theta", [](ModelSpec& m) { m.rope_theta = 5e5; }, "bloom-176b"},
                    BadFamily{"rope_scaling/beta_fast", [](ModelSpec& m) { m.rope_scaling.beta_fast = 0; }, kDeepseek},
                    BadFamily{"rope_scaling/mscale", [](ModelSpec& m) { m.rope_scaling.mscale = -1; }, kDeepseek},
                    BadFamily{"rope_scaling/original_max_positions",
                              [](ModelSpec& m) { m.rope_scaling.original_max_positions = 0; }, kDeepseek},
                    BadFamily{"rope_scaling/factor", [](ModelSpec& m) { m.rope_scaling.low_frequency_factor = 2; },
                              kDeepseek}));

TEST(FamilyJson, OmitsDefaultsOfAPlainDecoder) {
    const auto plain = nlohmann::json::parse(to_json_text(load_model("llama3-8b")));
    for (const char* key : {"moe", "latent", "causal", "rotary_fraction", "pooler"}) EXPECT_FALSE(plain.contains(key));
    // Only keys without a default are mandatory.
    auto json = nlohmann::json::parse(to_json_text(load_model("mixtral-8x7b")));
    json["moe"] = {{"expert_count", 8}, {"top_k", 2}, {"expert_ffn_hidden", 14336}};
    EXPECT_EQ(model_from_json_text(json.dump(), "m.json"), load_model("mixtral-8x7b"));
}

TEST(FamilyJson, RefusesUnknownMissingAndWrong) {
    const auto error = [](const char* model, const char* pointer, const nlohmann::json& value) {
        auto json = nlohmann::json::parse(to_json_text(load_model(model)));
        json[nlohmann::json::json_pointer(pointer)] = value;
        return message_of<InputError>([&] { (void)model_from_json_text(json.dump(), "m.json"); });
    };
    EXPECT_EQ(error("mixtral-8x7b", "/moe/top", 2).find("m.json: /moe/top: unknown key"), 0U);
    EXPECT_EQ(error("mixtral-8x7b", "/moe/top_k", 9).find("m.json: /moe/top_k: got 9; allowed: "), 0U);
    EXPECT_EQ(error("mixtral-8x7b", "/moe/expert_count", 0).find("m.json: /moe/expert_count: got 0; "), 0U);
    EXPECT_EQ(error("mixtral-8x7b", "/moe", nullptr).find("m.json: /moe: got null; "), 0U);
    EXPECT_EQ(error("mixtral-8x7b", "/moe", {{"expert_count", 8}}).find("m.json: /moe/top_k: the key is missing"), 0U);
    EXPECT_EQ(error("deepseek-v3", "/latent/v_head_dim", "128").find("m.json: /latent/v_head_dim: got \"128\"; "), 0U);
    EXPECT_EQ(error("deepseek-v3", "/latent/w", 1).find("m.json: /latent/w: unknown key"), 0U);
    EXPECT_EQ(error("deepseek-v3", "/head_dim", 128).find("m.json: /head_dim: got 128; allowed: 192"), 0U);
    EXPECT_EQ(error("gpt-neox-20b", "/rotary_fraction", 2).find("m.json: /rotary_fraction: got 2"), 0U);
    EXPECT_EQ(error("bert-base", "/causal", 0).find("m.json: /causal: got 0; "), 0U);
    EXPECT_EQ(error("bloom-176b", "/rope_theta", 1e4).find("m.json: /rope_theta: unknown key"), 0U);
    EXPECT_EQ(error("opt-175b", "/mlp", "silu").find("m.json: /mlp: got \"silu\"; "), 0U);
}

}  // namespace
}  // namespace orrery::models
