// Real Hugging Face configurations, from the shared samples.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "core/error.h"
#include "models/model_spec.h"

namespace orrery::models {
namespace {

/// Skips its tests if the shared samples are not available.
class Samples : public testing::Test {
  protected:
    void SetUp() override {
        const char* shared = std::getenv("ORRERY_SHARED");
        root_ =
            std::filesystem::path(shared != nullptr ? shared : ORRERY_SOURCE_DIR "/../shared") / "samples/models/hf";
        if (!std::filesystem::is_directory(root_)) GTEST_SKIP() << "no samples under " << root_;
    }
    std::filesystem::path root_;
};

TEST_F(Samples, CountTheirPublishedParameters) {
    const std::vector<std::pair<const char*, double>> published{{"gpt2", .124},
                                                                {"gpt2-xl", 1.558},
                                                                {"meta-llama--Llama-2-7b-hf", 6.738},
                                                                {"meta-llama--Llama-2-13b-hf", 13.016},
                                                                {"meta-llama--Llama-2-70b-hf", 68.977},
                                                                {"meta-llama--Meta-Llama-3-8B", 8.030},
                                                                {"meta-llama--Meta-Llama-3-70B", 70.554},
                                                                {"meta-llama--Meta-Llama-3.1-405B", 405.853},
                                                                {"mistralai--Mistral-7B-v0.1", 7.242},
                                                                {"Qwen--Qwen2.5-7B", 7.616},
                                                                {"Qwen--Qwen2.5-72B", 72.706},
                                                                {"Qwen--Qwen3-8B", 8.191},
                                                                {"mistralai--Mixtral-8x7B-v0.1", 46.703},
                                                                {"mistralai--Mixtral-8x22B-v0.1", 140.621},
                                                                {"Qwen--Qwen3-30B-A3B", 30.532},
                                                                {"Qwen--Qwen3-235B-A22B", 235.094},
                                                                {"deepseek-ai--DeepSeek-V3", 671.026},
                                                                {"EleutherAI--gpt-neox-20b", 20.555},
                                                                {"facebook--opt-175b", 174.604},
                                                                {"bigscience--bloom", 176.247},
                                                                {"tiiuae--falcon-40b", 41.303},
                                                                {"bert-large-uncased", .335}};
    for (const auto& [file, billions] : published) {
        const ModelSpec model = load_model((root_ / (std::string(file) + ".json")).string(), ModelParts::text_only);
        EXPECT_NEAR(static_cast<double>(parameter_count(model)) / 1e9, billions, 0.0005) << file;
    }
}

TEST_F(Samples, EqualTheZoo) {
    const std::vector<std::pair<const char*, const char*>> pairs{{"gpt2", "gpt2"},
                                                                 {"gpt2-medium", "gpt2-medium"},
                                                                 {"gpt2-large", "gpt2-large"},
                                                                 {"gpt2-xl", "gpt2-xl"},
                                                                 {"meta-llama--Llama-2-7b-hf", "llama2-7b"},
                                                                 {"meta-llama--Llama-2-13b-hf", "llama2-13b"},
                                                                 {"meta-llama--Llama-2-70b-hf", "llama2-70b"},
                                                                 {"meta-llama--Meta-Llama-3-8B", "llama3-8b"},
                                                                 {"meta-llama--Meta-Llama-3-70B", "llama3-70b"},
                                                                 {"meta-llama--Meta-Llama-3.1-8B", "llama3.1-8b"},
                                                                 {"meta-llama--Meta-Llama-3.1-70B", "llama3.1-70b"},
                                                                 {"meta-llama--Meta-Llama-3.1-405B", "llama3.1-405b"},
                                                                 {"mistralai--Mistral-7B-v0.1", "mistral-7b"},
                                                                 {"Qwen--Qwen2.5-7B", "qwen2.5-7b"},
                                                                 {"Qwen--Qwen2.5-72B", "qwen2.5-72b"},
                                                                 {"Qwen--Qwen3-8B", "qwen3-8b"},
                                                                 {"Qwen--Qwen3-32B", "qwen3-32b"},
                                                                 {"mistralai--Mixtral-8x7B-v0.1", "mixtral-8x7b"},
                                                                 {"mistralai--Mixtral-8x22B-v0.1", "mixtral-8x22b"},
                                                                 {"Qwen--Qwen3-30B-A3B", "qwen3-30b-a3b"},
                                                                 {"Qwen--Qwen3-235B-A22B", "qwen3-235b-a22b"},
                                                                 {"deepseek-ai--DeepSeek-V3", "deepseek-v3"},
                                                                 {"moonshotai--Kimi-K2-Instruct", "kimi-k2"},
                                                                 {"EleutherAI--gpt-neox-20b", "gpt-neox-20b"},
                                                                 {"facebook--opt-175b", "opt-175b"},
                                                                 {"bigscience--bloom", "bloom-176b"},
                                                                 {"tiiuae--falcon-40b", "falcon-40b"},
                                                                 {"tiiuae--falcon-7b", "falcon-7b"},
                                                                 {"bert-large-uncased", "bert-large"}};
    for (const auto& [file, name] : pairs) {
        ModelSpec model =
            read_hugging_face_config((root_ / (std::string(file) + ".json")).string(), ModelParts::text_only);
        for (const std::string& what : model.left_out) {  // only the two models with latent attention have some
            EXPECT_TRUE(what.starts_with("num_nextn_predict_layers: 1") || what.starts_with("quantization_config"))
                << file << ": " << what;
            EXPECT_TRUE(model.has_latent_attention()) << file;
        }
        std::erase_if(model.left_out, [](const std::string& what) { return what.starts_with("quantization_config"); });
        model.name = name;
        EXPECT_EQ(model, load_model(name)) << file;
    }
}

TEST_F(Samples, OfOtherArchitecturesAreRefused) {
    std::vector<std::string> refused;
    for (const auto& entry : std::filesystem::directory_iterator(root_)) {
        try {
            (void)load_model(entry.path().string(), ModelParts::text_only);
        } catch (const InputError& error) {
            EXPECT_NE(std::string(error.what()).find("model_type: got "), std::string::npos) << error.what();
            refused.push_back(entry.path().stem().string());
        }
    }
    std::sort(refused.begin(), refused.end());
    EXPECT_EQ(refused,
              (std::vector<std::string>{"google--vit-large-patch16-224", "meta-llama--Llama-4-Scout-17B-16E-Instruct",
                                        "openai--gpt-oss-120b"}));
}

}  // namespace
}  // namespace orrery::models
