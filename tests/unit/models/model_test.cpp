#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "models/model_spec.h"
#include "tests/unit/core/test_folder.h"

namespace orrery::models {
namespace {

TEST(Zoo, ParameterCountsMatchTheClosedForms) {
    // GPT-2 family: 12 h^2 + 13 h a layer, V h + s h for the embeddings, 2 h for the last norm.
    for (const char* name :
         {"gpt2", "gpt2-xl", "gpt3-175b", "megatron-22b", "megatron-530b", "megatron-1t", "mt-nlg-530b", "gpt-1t"}) {
        const ModelSpec m = load_model(name);
        const std::int64_t h = m.hidden;
        EXPECT_EQ(parameter_count(m), m.layers * (12 * h * h + 13 * h) + (m.vocab + m.max_positions + 2) * h) << name;
    }
}

struct Published {
    const char* name;
    double billions;  // to three decimals
};
class ZooCounts : public testing::TestWithParam<Published> {};
TEST_P(ZooCounts, EqualThePublishedFigures) {
    const double billions = static_cast<double>(parameter_count(load_model(GetParam().name))) / 1e9;
    EXPECT_NEAR(billions, GetParam().billions, 0.0005) << GetParam().name;
}
INSTANTIATE_TEST_SUITE_P(All, ZooCounts,
                         testing::Values(Published{"gpt2", .124}, Published{"gpt2-medium", .355},
                                         Published{"gpt2-large", .774}, Published{"gpt2-xl", 1.558},
                                         Published{"llama2-7b", 6.738}, Published{"llama2-13b", 13.016},
                                         Published{"llama2-70b", 68.977}, Published{"llama3-8b", 8.030},
                                         Published{"llama3-70b", 70.554}, Published{"llama3.1-8b", 8.030},
                                         Published{"llama3.1-70b", 70.554}, Published{"llama3.1-405b", 405.853},
                                         Published{"llama3-405b", 405.853}, Published{"mistral-7b", 7.242},
                                         Published{"qwen2.5-7b", 7.616}, Published{"qwen2.5-72b", 72.706},
                                         Published{"qwen3-8b", 8.191}, Published{"qwen3-32b", 32.762}));

TEST(Zoo, HasEveryModelUnderItsName) {
    const std::vector<std::string> names = zoo_names();
    EXPECT_EQ(names.size(), 45U);
    EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
    for (const std::string& name : names) {
        const ModelSpec model = load_model(name);
        EXPECT_EQ(model.name, name);
        EXPECT_EQ(model_from_json_text(to_json_text(model), name), model) << name;
    }
}

TEST(Zoo, KeepsFamilySpecificFields) {
    EXPECT_TRUE(load_model("gpt2").tied_embeddings);
    EXPECT_FALSE(load_model("llama2-7b").tied_embeddings);
    EXPECT_TRUE(load_model("qwen2.5-7b").qkv_bias);
    EXPECT_TRUE(load_model("qwen3-8b").qk_norm);
    EXPECT_EQ(load_model("mistral-7b").sliding_window, 4096);
    EXPECT_EQ(load_model("llama3-8b").rope_scaling.type, "none");
    EXPECT_EQ(load_model("llama3.1-8b").rope_scaling.factor, 8.0);
    EXPECT_EQ(load_model("tiny-llama").kv_heads, 2);
    EXPECT_EQ(parameter_count(load_model("tiny-gpt")), 4 * (12 * 64 * 64 + 13 * 64) + (128 + 64 + 2) * 64);
}

TEST(LoadModel, SuggestsTheNearestName) {
    const std::string message = message_of<InputError>([] { (void)load_model("llama3-70"); });
    EXPECT_NE(message.find("model \"llama3-70\""), std::string::npos) << message;
    EXPECT_NE(message.find("did you mean \"llama3-70b\"?"), std::string::npos) << message;
    EXPECT_NE(message.find("tiny-llama"), std::string::npos) << message;
}

TEST(LoadModel, ReadsAnOrreryModelFile) {
    const TestFolder folder;
    ModelSpec model = load_model("tiny-llama");
    model.name = "mine";
    std::ofstream(folder.file("mine.json")) << to_json_text(model);
    EXPECT_EQ(load_model(folder.file("mine.json")), model);
}

// The closed form for one sequence: 72 L s h^2 (1 + s/(6h) + V/(12hL)).
TEST(ModelFlops, FullAttentionEqualsTheClosedFormOfMegatron) {
    for (const char* name : {"megatron-22b", "gpt3-175b", "megatron-530b", "megatron-1t"}) {
        const ModelSpec m = load_model(name);
        const double s = 2048;
        const auto h = static_cast<double>(m.hidden);
        const auto layers = static_cast<double>(m.layers);
        const double closed =
            72 * layers * s * h * h * (1 + s / (6 * h) + static_cast<double>(m.vocab) / (12 * h * layers));
        EXPECT_NEAR(model_flops_per_sequence(m, 2048, FlopsConvention::full_attention) / closed, 1, 1e-12) << name;
    }
}

// arXiv 2205.05198 table 5, selective recomputation: seconds a step, GPUs, sequences a step -> MFU at 312 TFLOP/s.
TEST(ModelFlops, FullAttentionGivesThePublishedMfu) {
    struct Row {
        const char* name;
        double seconds, devices, sequences, percent;
    };
    for (const Row& row : {Row{"megatron-22b", 1.10, 8, 4, 41.7}, Row{"gpt3-175b", 13.75, 64, 64, 51.4},
                           Row{"megatron-530b", 37.83, 280, 280, 56.0}, Row{"megatron-1t", 71.49, 512, 512, 56.3}}) {
        const double flops =
            row.sequences * model_flops_per_sequence(load_model(row.name), 2048, FlopsConvention::full_attention);
        EXPECT_NEAR(100 * flops / (row.seconds * row.devices * 312e12), row.percent, 0.05) << row.name;
    }
}

TEST(ModelFlops, ConventionsDifferAsStated) {
    const ModelSpec m = load_model("llama3-8b");
    // Spread full/half of Llama-3-8B at 2k, 8k, 32k and 128k tokens.
    const auto spread = [&](std::int64_t s) {
        return model_flops_per_sequence(m, s, FlopsConvention::full_attention) /
               model_flops_per_sequence(m, s, FlopsConvention::causal_half);
    };
    EXPECT_NEAR(spread(2048), 1.035, 0.0005);
    EXPECT_NEAR(spread(8192), 1.125, 0.0005);
    EXPECT_NEAR(spread(32768), 1.36, 0.005);
    EXPECT_NEAR(spread(131072), 1.70, 0.005);
    // 6N + 12 L a d s per token, N without the untied input embedding.
    const double n = static_cast<double>(parameter_count(m)) - 128256.0 * 4096;
    EXPECT_DOUBLE_EQ(model_flops_per_sequence(m, 8192, FlopsConvention::palm),
                     8192 * (6 * n + 12.0 * 32 * 4096 * 8192));
    EXPECT_EQ(name_of(FlopsConvention::causal_half), "causal-half");
}

TEST(ModelFlops, ASlidingWindowReducesTheSquareToABand) {
    ModelSpec m = load_model("mistral-7b");
    ModelSpec full = m;
    full.sliding_window = 0;
    for (FlopsConvention convention : {FlopsConvention::full_attention, FlopsConvention::causal_half}) {
        EXPECT_EQ(model_flops_per_sequence(m, 4096, convention), model_flops_per_sequence(full, 4096, convention));
        EXPECT_LT(model_flops_per_sequence(m, 8192, convention), model_flops_per_sequence(full, 8192, convention));
    }
}

struct BadModel {
    const char* key;
    void (*spoil)(ModelSpec&);
};
class CheckModel : public testing::TestWithParam<BadModel> {};
TEST_P(CheckModel, RefusesAndNamesTheKey) {
    ModelSpec model = load_model("tiny-llama");
    check_model(model, "good");
    GetParam().spoil(model);
    const std::string message = message_of<InputError>([&] { check_model(model, "changed"); });
    EXPECT_EQ(message.find(std::string("changed: /") + GetParam().key + ": got "), 0U) << message;
    EXPECT_NE(message.find("allowed: "), std::string::npos) << message;
}
INSTANTIATE_TEST_SUITE_P(
    All, CheckModel,
    testing::Values(BadModel{"layers", [](ModelSpec& m) { m.layers = 0; }},
                    BadModel{"hidden", [](ModelSpec& m) { m.hidden = -64; }},
                    BadModel{"heads", [](ModelSpec& m) { m.heads = 0; }},
                    BadModel{"kv_heads", [](ModelSpec& m) { m.kv_heads = 3; }},
                    BadModel{"kv_heads", [](ModelSpec& m) { m.kv_heads = 8; }},
                    BadModel{"head_dim", [](ModelSpec& m) { m.head_dim = 15; }},
                    BadModel{"ffn_hidden", [](ModelSpec& m) { m.ffn_hidden = 0; }},
                    BadModel{"vocab", [](ModelSpec& m) { m.vocab = std::int64_t{1} << 40; }},
                    BadModel{"max_positions", [](ModelSpec& m) { m.max_positions = 0; }},
                    BadModel{"sliding_window", [](ModelSpec& m) { m.sliding_window = -1; }},
                    BadModel{"name", [](ModelSpec& m) { m.name.clear(); }},
                    BadModel{"family", [](ModelSpec& m) { m.family = "t5"; }},
                    BadModel{"norm_epsilon", [](ModelSpec& m) { m.norm_epsilon = 0; }},
                    BadModel{"norm_epsilon", [](ModelSpec& m) { m.norm_epsilon = std::nan(""); }},
                    BadModel{"rope_theta", [](ModelSpec& m) { m.rope_theta = -1; }},
                    BadModel{"rope_scaling/type", [](ModelSpec& m) { m.rope_scaling.type = "dynamic"; }},
                    BadModel{"rope_scaling/factor", [](ModelSpec& m) { m.rope_scaling.factor = 2; }},
                    BadModel{"rope_scaling/high_frequency_factor",
                             [](ModelSpec& m) {
                                 m.rope_scaling = {"llama3", 8, 4, 1, 8192};
                             }},
                    BadModel{"rope_scaling/original_max_positions",
                             [](ModelSpec& m) {
                                 m.rope_scaling = {"llama3", 8, 1, 4, 0};
                             }},
                    BadModel{"rope_theta", [](ModelSpec& m) {
                                 m.position = PositionKind::learned;
                                 m.rope_theta = 5e5;
                             }}));

TEST(ModelJson, RefusesUnknownMissingAndWrong) {
    const std::string good = to_json_text(load_model("tiny-llama"));
    const auto error_with = [&](const std::string& from, const std::string& to) {
        std::string text = good;
        const std::size_t at = text.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        text.replace(at, from.size(), to);
        return message_of<InputError>([&] { (void)model_from_json_text(text, "m.json"); });
    };
    EXPECT_EQ(error_with("\"layers\"", "\"laeyrs\"").find("m.json: /layers: the key is missing; "), 0U);
    EXPECT_EQ(error_with("\"layers\": 4", "\"layers\": 4, \"layer\": 4").find("m.json: /layer: unknown key"), 0U);
    EXPECT_EQ(error_with("\"layers\": 4", "\"layers\": 0").find("m.json: /layers: got 0; "), 0U);
    EXPECT_EQ(error_with("\"layers\": 4", "\"layers\": \"4\"").find("m.json: /layers: got \"4\"; "), 0U);
    EXPECT_EQ(error_with("\"layers\": 4", "\"layers\": 4.0").find("m.json: /layers: got 4.0; "), 0U);
    EXPECT_EQ(error_with("model/1", "model/2").find("m.json: /schema: got \"orrery.model/2\"; "), 0U);
    EXPECT_EQ(error_with("rms_norm", "rmsnorm").find("m.json: /norm: got \"rmsnorm\"; "), 0U);
    EXPECT_EQ(error_with("{\n    \"type\": \"none\"", "{\"type\": \"none\", \"factor\": 2")
                  .find("m.json: /rope_scaling/factor"),
              0U);
    EXPECT_THROW((void)model_from_json_text(good.substr(0, good.size() / 2), "m.json"), InputError);
}

/// Keys under `properties` of a published schema or of its object `part`, sorted.
std::vector<std::string> keys_of_schema(const std::string& kind, const std::string& part = "") {
    auto schema = nlohmann::json::parse(
        read_text_file(std::string(ORRERY_SOURCE_DIR) + "/docs/schema/orrery." + kind + ".1.schema.json"));
    if (!part.empty()) schema = nlohmann::json(schema.at("properties").at(part));
    EXPECT_EQ(schema.at("additionalProperties"), false);
    std::vector<std::string> keys;
    for (const auto& [key, value] : schema.at("properties").items()) keys.push_back(key);
    return keys;
}
std::vector<std::string> keys_of(const nlohmann::json& document) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : document.items()) keys.push_back(key);
    return keys;
}

TEST(Schemas, HaveTheWrittenKeys) {
    // Optional keys are written only if needed, so the keys of all zoo models are merged with those that no zoo model
    // has.
    nlohmann::json model{{"source", ""}, {"pooler", true}, {"left_out", nlohmann::json::array()}};
    for (const std::string& name : zoo_names()) {
        model.update(nlohmann::json::parse(to_json_text(load_model(name))));
    }
    EXPECT_EQ(keys_of(model), keys_of_schema("model"));
    const nlohmann::json deepseek = nlohmann::json::parse(to_json_text(load_model("deepseek-v3")));
    EXPECT_EQ(keys_of(deepseek.at("moe")), keys_of_schema("model", "moe"));
    EXPECT_EQ(keys_of(deepseek.at("latent")), keys_of_schema("model", "latent"));
}

}  // namespace
}  // namespace orrery::models
