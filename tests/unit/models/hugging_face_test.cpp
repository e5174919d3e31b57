#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "models/model_spec.h"
#include "tests/unit/core/test_folder.h"
#include "tests/unit/models/hugging_face_configs.h"

namespace orrery::models {
namespace {

using nlohmann::ordered_json;

ordered_json gpt2() {
    return ordered_json::parse(R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": 12,
        "n_embd": 768, "n_head": 12, "n_inner": null, "n_positions": 1024, "vocab_size": 50257,
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-05})");
}
ordered_json llama() {
    return ordered_json::parse(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
        "intermediate_size": 176, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
        "vocab_size": 128, "max_position_embeddings": 64, "hidden_act": "silu", "rms_norm_eps": 1e-05,
        "torch_dtype": "bfloat16"})");
}
ordered_json family(const std::string& name, const std::string& architecture) {
    ordered_json config = llama();
    config["model_type"] = name;
    config["architectures"] = {architecture};
    config["head_dim"] = 16;
    return config;
}
ordered_json qwen2() {
    return family("qwen2", "Qwen2ForCausalLM");
}
ordered_json qwen3() {
    return family("qwen3", "Qwen3ForCausalLM");
}
ordered_json mistral() {
    return family("mistral", "MistralForCausalLM");
}

/// The part of the message after the file's name.
std::string error_of(const ordered_json& config) {
    const TestFolder folder;
    std::ofstream(folder.file("config.json")) << config.dump();
    const std::string path = folder.file("config.json");
    const std::string message = message_of<InputError>([&] { (void)read_hugging_face_config(path); });
    EXPECT_EQ(message.find(path + ": "), 0U) << message;
    return message.substr(std::min(message.size(), path.size() + 2));
}
TEST(HuggingFace, ReadsGpt2) {
    const ModelSpec model = read_config(gpt2());
    EXPECT_EQ(model.layers, 12);
    EXPECT_EQ(model.head_dim, 64);
    EXPECT_EQ(model.kv_heads, 12);
    EXPECT_EQ(model.ffn_hidden, 4 * 768);
    EXPECT_TRUE(model.tied_embeddings);
    EXPECT_TRUE(model.qkv_bias && model.attention_output_bias && model.mlp_bias);
    EXPECT_EQ(model.norm, NormKind::layer_norm);
    EXPECT_EQ(model.position, PositionKind::learned);
    EXPECT_EQ(model.mlp, MlpKind::gelu);
    EXPECT_EQ(read_config(with(gpt2(), "n_inner", 1000)).ffn_hidden, 1000);
    EXPECT_EQ(read_config(without(gpt2(), "n_inner")).ffn_hidden, 4 * 768);
    EXPECT_FALSE(read_config(with(gpt2(), "tie_word_embeddings", false)).tied_embeddings);
}

TEST(HuggingFace, ReadsLlama) {
    const ModelSpec model = read_config(llama());
    EXPECT_EQ(model.head_dim, 16);
    EXPECT_EQ(model.kv_heads, 2);
    EXPECT_FALSE(model.tied_embeddings);
    EXPECT_FALSE(model.qkv_bias || model.attention_output_bias || model.mlp_bias || model.qk_norm);
    EXPECT_EQ(model.rope_theta, 10000.0);
    EXPECT_EQ(read_config(without(llama(), "num_key_value_heads")).kv_heads, 4);
    EXPECT_EQ(read_config(with(llama(), "num_key_value_heads", nullptr)).kv_heads, 4);
    EXPECT_EQ(read_config(with(llama(), "head_dim", 32)).head_dim, 32);
    const ModelSpec biased = read_config(with(with(llama(), "attention_bias", true), "mlp_bias", true));
    EXPECT_TRUE(biased.qkv_bias && biased.attention_output_bias && biased.mlp_bias);
    EXPECT_TRUE(read_config(with(llama(), "tie_word_embeddings", true)).tied_embeddings);
}

TEST(HuggingFace, NamesTheModelAfterItsFolderOrFile) {
    const TestFolder folder;
    std::filesystem::create_directory(folder.path() / "my-llama");
    std::ofstream(folder.file("my-llama/config.json")) << llama();
    EXPECT_EQ(load_model(folder.file("my-llama")).name, "my-llama");
    EXPECT_EQ(load_model(folder.file("my-llama/")).name, "my-llama");
    std::ofstream(folder.file("other-8b.json")) << llama();
    EXPECT_EQ(load_model(folder.file("other-8b.json")).name, "other-8b");
    EXPECT_THROW((void)load_model(folder.path().string()), InputError);  // no config.json in it
}

TEST(HuggingFace, FollowsTheQuirksOfTheFamilies) {
    EXPECT_TRUE(read_config(qwen2()).qkv_bias);
    EXPECT_FALSE(read_config(qwen2()).attention_output_bias);
    EXPECT_FALSE(read_config(qwen2()).qk_norm);
    EXPECT_TRUE(read_config(qwen3()).qk_norm);
    EXPECT_FALSE(read_config(qwen3()).qkv_bias);
    EXPECT_EQ(read_config(without(qwen2(), "head_dim")).head_dim, 16);
    EXPECT_EQ(error_of(without(qwen3(), "head_dim")).find("/head_dim: the key is missing"), 0U);
    EXPECT_EQ(error_of(without(mistral(), "num_key_value_heads")).find("/num_key_value_heads: the key is missing"), 0U);
}

TEST(HuggingFace, ReadsOldAndNewRotaryKeys) {
    const ordered_json scaling = ordered_json::parse(R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})");
    const ModelSpec old_style = read_config(with(with(llama(), "rope_theta", 500000), "rope_scaling", scaling));
    EXPECT_EQ(old_style.rope_theta, 500000.0);
    EXPECT_EQ(old_style.rope_scaling, (ModelSpec::RopeScaling{"llama3", 8, 1, 4, 8192}));
    ordered_json parameters = scaling;
    parameters["rope_theta"] = 500000.0;
    ordered_json new_style = with(llama(), "rope_parameters", parameters);
    new_style["dtype"] = "bfloat16";
    EXPECT_EQ(read_config(without(new_style, "torch_dtype")).rope_scaling, old_style.rope_scaling);
    EXPECT_EQ(read_config(new_style).rope_theta, 500000.0);
    const ordered_json plain = {{"rope_type", "default"}, {"rope_theta", 1e6}};
    EXPECT_EQ(read_config(with(llama(), "rope_parameters", plain)).rope_scaling.type, "none");
    EXPECT_EQ(read_config(with(llama(), "rope_parameters", plain)).rope_theta, 1e6);
    EXPECT_EQ(read_config(with(llama(), "rope_scaling", nullptr)).rope_scaling.type, "none");

    const ordered_json linear = {{"type", "linear"}, {"factor", 4.0}};
    EXPECT_EQ(read_config(with(llama(), "rope_scaling", linear)).rope_scaling, (ModelSpec::RopeScaling{"linear", 4}));
    const ordered_json yarn = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}};
    EXPECT_EQ(read_config(with(llama(), "rope_scaling", yarn)).rope_scaling,
              (ModelSpec::RopeScaling{"yarn", 4, 1, 1, 16, 32, 1, 0, 0}));
    EXPECT_EQ(error_of(with(llama(), "rope_scaling", without(yarn, "original_max_position_embeddings")))
                  .find("/rope_scaling/original_max_position_embeddings: the key is missing"),
              0U);
    EXPECT_EQ(error_of(with(llama(), "rope_scaling", with(yarn, "attention_factor", 2.0)))
                  .find("/rope_scaling/attention_factor: got 2.0"),
              0U);
    EXPECT_EQ(error_of(with(llama(), "rope_scaling", {{"type", "dynamic"}, {"factor", 4.0}})),
              "/rope_scaling/type: got \"dynamic\"; allowed: \"default\", \"linear\", \"llama3\", \"yarn\"");
    EXPECT_EQ(error_of(with(llama(), "rope_scaling", without(scaling, "factor"))).find("/rope_scaling/factor: "), 0U);
    EXPECT_EQ(error_of(with(new_style, "rope_theta", 10000.0)).find("/rope_theta: got 10000.0"), 0U);
    parameters["low_freq_factor"] = -1;
    EXPECT_EQ(error_of(with(llama(), "rope_parameters", parameters)).find("/rope_parameters/low_freq_factor: got -1"),
              0U);
}

TEST(HuggingFace, ReadsSlidingWindows) {
    EXPECT_EQ(read_config(with(mistral(), "sliding_window", 32)).sliding_window, 32);
    EXPECT_EQ(read_config(with(mistral(), "sliding_window", nullptr)).sliding_window, 0);
    EXPECT_EQ(read_config(mistral()).sliding_window, 4096);
    const ordered_json off = with(with(qwen2(), "sliding_window", 32), "use_sliding_window", false);
    EXPECT_EQ(read_config(off).sliding_window, 0);
    const ordered_json on = with(off, "use_sliding_window", true);
    EXPECT_EQ(read_config(with(on, "max_window_layers", 0)).sliding_window, 32);
    EXPECT_EQ(read_config(with(on, "max_window_layers", 4)).sliding_window, 0);
    EXPECT_EQ(error_of(with(on, "max_window_layers", 2)).find("/max_window_layers: got 2"), 0U);
    EXPECT_EQ(read_config(with(qwen3(), "layer_types", {"full_attention", "full_attention"})).sliding_window, 0);
    EXPECT_EQ(error_of(with(qwen3(), "layer_types", {"full_attention", "sliding_attention"})).find("/layer_types: "),
              0U);
    EXPECT_EQ(error_of(with(llama(), "sliding_window", 32)).find("/sliding_window: got 32"), 0U);
}

TEST(HuggingFace, ReadsTheLanguageModelOfAMultimodalFile) {
    ordered_json text = without(mistral(), "architectures");
    ordered_json config = {{"architectures", {"Mistral3ForConditionalGeneration"}},
                           {"model_type", "mistral3"},
                           {"tie_word_embeddings", true},
                           {"text_config", text}};
    EXPECT_EQ(read_config(config).family, "mistral");
    EXPECT_TRUE(read_config(config).tied_embeddings);
    config["text_config"]["num_hidden_layers"] = 0;
    EXPECT_EQ(error_of(config).find("/text_config/num_hidden_layers: got 0"), 0U);
}

TEST(HuggingFace, DispatchesOnTheArchitectureWhenTheTypeIsAbsent) {
    EXPECT_EQ(read_config(without(llama(), "model_type")).family, "llama");
    EXPECT_EQ(read_config(without(llama(), "architectures")).family, "llama");
    EXPECT_EQ(
        error_of(without(without(llama(), "architectures"), "model_type")).find("/model_type: the key is missing"), 0U);
    EXPECT_EQ(error_of(with(llama(), "architectures", {"LlamaForSequenceClassification"})).find("/architectures: "),
              0U);
}

TEST(HuggingFace, RefusesWhatAModelSpecCannotExpress) {
    const std::string allowed =
        "; allowed: bert, bloom, deepseek_v2, deepseek_v3, falcon, gpt2, gpt_neox, llama, mistral, mixtral, opt, "
        "qwen2, "
        "qwen2_moe, qwen3, qwen3_moe, kimi_k2; ";
    EXPECT_EQ(error_of(with(llama(), "model_type", "t5")),
              "/model_type: got \"t5\"" + allowed +
                  "none is near: an encoder and a decoder, which are not modelled together");
    EXPECT_EQ(error_of(with(llama(), "model_type", "qwen3_next")),
              "/model_type: got \"qwen3_next\"" + allowed +
                  "the nearest is qwen3_moe, but three of four layers have linear attention (gated DeltaNet)");
    EXPECT_EQ(error_of(with(llama(), "model_type", "brandnew")),
              "/model_type: got \"brandnew\"" + allowed + "by its keys the nearest is llama");
    EXPECT_EQ(error_of(with(with(llama(), "model_type", "brandnew"), "ssm_state_size", 128)),
              "/model_type: got \"brandnew\"" + allowed +
                  "none is near: its keys are those of state-space layers or linear attention, which are not modelled");
    EXPECT_EQ(error_of(with(llama(), "is_causal", false)),
              "/is_causal: got false; allowed: true or absent in the llama family");
    EXPECT_EQ(error_of(with(llama(), "model_type", "mixtral")),
              "/architectures: got [\"LlamaForCausalLM\"]; allowed: [\"MixtralForCausalLM\"] for model_type "
              "\"mixtral\"");
    EXPECT_EQ(error_of(with(llama(), "num_local_experts", 8)).find("/num_local_experts: got 8"), 0U);
    EXPECT_EQ(error_of(with(llama(), "kv_lora_rank", 512)).find("/kv_lora_rank: got 512"), 0U);
    EXPECT_EQ(error_of(with(llama(), "partial_rotary_factor", 0.5)).find("/partial_rotary_factor: got 0.5"), 0U);
    EXPECT_EQ(error_of(with(llama(), "hidden_act", "gelu")), "/hidden_act: got \"gelu\"; allowed: \"silu\", \"swish\"");
    EXPECT_EQ(error_of(with(gpt2(), "activation_function", "relu")).find("/activation_function: got \"relu\""), 0U);
    EXPECT_EQ(error_of(with(gpt2(), "scale_attn_by_inverse_layer_idx", true))
                  .find("/scale_attn_by_inverse_layer_idx: got true"),
              0U);
    // The same keys, switched off, change nothing.
    ordered_json off = llama();
    off["num_experts"] = 0;
    off["kv_lora_rank"] = nullptr;
    off["use_qk_norm"] = false;
    off["mlp_only_layers"] = ordered_json::array();
    off["pruned_heads"] = ordered_json::object();
    off["partial_rotary_factor"] = 1.0;
    ModelSpec expected = read_config(llama());
    ModelSpec actual = read_config(off);
    expected.name = actual.name;  // each is named after its folder
    EXPECT_EQ(actual, expected);
}

TEST(HuggingFace, NamesTheFilesOwnKeysInErrors) {
    EXPECT_EQ(error_of(with(llama(), "num_hidden_layers", 0)),
              "/num_hidden_layers: got 0; allowed: an integer from 1 to 16384");
    EXPECT_EQ(error_of(with(llama(), "num_attention_heads", 0)).find("/num_attention_heads: got 0"), 0U);
    EXPECT_EQ(error_of(with(llama(), "num_attention_heads", 5)).find("/num_attention_heads: got 5"), 0U);
    EXPECT_EQ(error_of(with(llama(), "num_key_value_heads", 3)).find("/num_key_value_heads: got 3"), 0U);
    EXPECT_EQ(error_of(with(llama(), "hidden_size", "64")).find("/hidden_size: got \"64\""), 0U);
    EXPECT_EQ(error_of(with(llama(), "hidden_size", 64.5)).find("/hidden_size: got 64.5"), 0U);
    EXPECT_EQ(error_of(with(llama(), "vocab_size", true)).find("/vocab_size: got true"), 0U);
    EXPECT_EQ(error_of(without(llama(), "intermediate_size")).find("/intermediate_size: the key is missing"), 0U);
    EXPECT_EQ(error_of(with(gpt2(), "n_head", 7)).find("/n_head: got 7; allowed: a divisor of n_embd, 768"), 0U);
    EXPECT_EQ(error_of(with(gpt2(), "n_layer", 0)).find("/n_layer: got 0"), 0U);
    EXPECT_EQ(error_of(with(gpt2(), "layer_norm_epsilon", 0)).find("/layer_norm_epsilon: got 0"), 0U);
}

TEST(HuggingFace, RefusesTruncatedFiles) {
    const TestFolder folder;
    const std::string text = llama().dump();
    std::ofstream(folder.file("config.json")) << text.substr(0, text.size() / 2);
    EXPECT_THROW((void)load_model(folder.file("config.json")), InputError);
    std::ofstream(folder.file("config.json"));
    EXPECT_THROW((void)load_model(folder.file("config.json")), InputError);
}

TEST(HuggingFace, ListsUnknownKeys) {
    const TestFolder folder;
    std::ofstream(folder.file("config.json")) << with(with(llama(), "use_cache", true), "colour", "blue");
    EXPECT_EQ(read_hugging_face_config(folder.file("config.json")).left_out,
              (std::vector<std::string>{"colour: \"blue\" (not known)"}));
}

/// Files of multimodal models have the language model in a section of its own.
TEST(HuggingFace, TowersAreRefusedWithoutTextOnly) {
    ordered_json whole{{"model_type", "mistral3"},
                       {"architectures", {"Mistral3ForConditionalGeneration"}},
                       {"text_config", llama()},
                       {"vision_config", {{"hidden_size", 32}}},
                       {"image_token_index", 10}};
    EXPECT_EQ(
        error_of(whole),
        "/vision_config: got an object with 1 keys; allowed: absent: only language models are supported; --text-only "
        "takes that part alone");
    const TestFolder folder;
    std::ofstream(folder.file("config.json")) << whole.dump();
    const ModelSpec text = load_model(folder.file("config.json"), ModelParts::text_only);
    EXPECT_EQ(text.left_out,
              (std::vector<std::string>{"vision_config: an object with 1 keys (the language model alone)",
                                        "image_token_index: 10 (not known)"}));
    EXPECT_EQ(text.layers, read_config(llama()).layers);
    EXPECT_EQ(model_from_json_text(to_json_text(text), "again"), text);
    whole.erase("vision_config");
    EXPECT_EQ(read_config(whole).layers, text.layers);
}

TEST(HuggingFace, NotesTheTypeOfStoredWeights) {
    const ModelSpec model = read_config(with(llama(), "quantization_config", {{"bits", 4}}));
    EXPECT_EQ(model.left_out,
              (std::vector<std::string>{"quantization_config: an object with 1 keys (training is in the "
                                        "plan's precision)"}));
}

/// Python writes Infinity and NaN, which are not valid JSON.
TEST(HuggingFace, AcceptsInfinityInUnknownKeys) {
    const TestFolder folder;
    std::string text = with(llama(), "time_step_limit", "LIMIT").dump();
    text.replace(text.find("\"LIMIT\""), 7, "[0.0, Infinity, -Infinity, NaN, \"Infinity\"]");
    std::ofstream(folder.file("config.json")) << text;
    EXPECT_EQ(read_hugging_face_config(folder.file("config.json")).left_out,
              (std::vector<std::string>{"time_step_limit: [0.0, null, null, null, \"Infinity\"] (not known)"}));
    text.replace(text.find("\"hidden_size\":"), 14, "\"hidden_size\": Infinity, \"was\":");
    std::ofstream(folder.file("config.json")) << text;
    EXPECT_THROW((void)read_hugging_face_config(folder.file("config.json")), InputError);
}

}  // namespace
}  // namespace orrery::models
