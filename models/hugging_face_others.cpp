// Architectures that are not supported yet, with their differences from the nearest supported one.
#include <algorithm>
#include <tuple>
#include <utility>

#include "core/file.h"
#include "models/hugging_face.h"

namespace orrery::models {
namespace {

struct OtherFamily {
    const char* model_type;
    const char* nearest;  // empty: none is near
    const char* differs;
};

constexpr const char* kMamba = "its layers are state-space layers (Mamba), which are not modelled";

/// From the configuration and modelling files in transformers.
const std::vector<OtherFamily>& other_families() {
    static const std::vector<OtherFamily> all{
        {"bamba", "llama", "most of its layers are state-space layers (Mamba-2)"},
        {"chatglm", "llama", "half of each head is rotated, in pairs of neighbours"},
        {"cohere", "llama", "attention and MLP are parallel after a LayerNorm, and logits are scaled"},
        {"cohere2", "llama", "attention and MLP are parallel, and three of four layers have a sliding window"},
        {"dbrx", "mixtral", "LayerNorm, clipped q, k and v, and other expert widths"},
        {"deepseek_v32", "deepseek_v3", "an indexer chooses the keys that attention sees (sparse attention)"},
        {"ernie4_5", "llama", "rotations of neighbours"},
        {"ernie4_5_moe", "qwen3_moe", "no norms of q and k, and shared experts"},
        {"exaone", "llama", "the same layers under other keys"},
        {"falcon_h1", "llama", "each layer has state-space heads (Mamba-2) in parallel with attention"},
        {"falcon_mamba", "", kMamba},
        {"gemma", "llama", "GELU as the gate and scaled embeddings"},
        {"gemma2", "llama", "capped logits, four norms a layer, and a sliding window in every other layer"},
        {"gemma3", "llama", "four norms a layer, and a sliding window in five of six layers"},
        {"gemma3_text", "llama", "four norms a layer, and a sliding window in five of six layers"},
        {"glm", "llama", "half of each head is rotated"},
        {"glm4", "llama", "four norms a layer, and half of each head is rotated"},
        {"glm4_moe", "qwen3_moe", "shared experts, DeepSeek's router, and half of each head is rotated"},
        {"gpt_bigcode", "gpt2", "one key/value head"},
        {"gpt_neo", "gpt2", "a sliding window in every other layer"},
        {"gpt_oss", "mixtral", "biases of experts, attention sinks, and a sliding window in every other layer"},
        {"gptj", "gpt_neox", "one norm for attention and MLP, no biases of q, k and v, rotations of neighbours"},
        {"granite", "llama", "multipliers of embeddings, residuals, attention and logits"},
        {"granitemoe", "mixtral", "multipliers of embeddings, residuals, attention and logits"},
        {"granitemoehybrid", "mixtral", "most of its layers are state-space layers (Mamba-2)"},
        {"hunyuan_v1_dense", "llama", "norms of q and k after the rotation"},
        {"hunyuan_v1_moe", "qwen3_moe", "norms of q and k after the rotation, and a shared expert"},
        {"internlm2", "llama", "the same layers under other keys"},
        {"jamba", "mixtral", "seven of eight layers are state-space layers (Mamba)"},
        {"jetmoe", "mixtral", "attention has experts too"},
        {"lfm2", "llama", "most of its layers are short convolutions"},
        {"llama4", "mixtral", "chunked attention, layers without rotation, one shared expert and sigmoid scores"},
        {"llama4_text", "mixtral", "chunked attention, layers without rotation, one shared expert and sigmoid scores"},
        {"mamba", "", kMamba},
        {"mamba2", "", kMamba},
        {"minicpm", "llama", "multipliers of embeddings, residuals and logits"},
        {"minicpm3", "deepseek_v2", "no experts, and multipliers of embeddings, residuals and logits"},
        {"minimax", "mixtral", "seven of eight layers have linear (lightning) attention"},
        {"minimax_m2", "mixtral", "sigmoid scores, and norms of whole q and k"},
        {"mpt", "bloom", "no biases, and no norm after the embeddings"},
        {"nemotron", "llama", "squared ReLU without a gate, and a LayerNorm"},
        {"nemotron_h", "llama", "most of its layers are state-space layers (Mamba-2), and a layer is attention or MLP"},
        {"olmo", "llama", "a LayerNorm without weights"},
        {"olmo2", "llama", "norms after attention and MLP, and of whole q and k"},
        {"olmoe", "qwen3_moe", "norms of whole q and k"},
        {"persimmon", "gpt_neox", "squared ReLU, and norms of q and k"},
        {"phi", "gpt_neox", "one norm for attention and MLP"},
        {"phi3", "llama", "the same layers with merged weights, and rotations scaled by LongRoPE"},
        {"phimoe", "mixtral", "LayerNorm, biases, and a router of its own"},
        {"qwen3_next", "qwen3_moe", "three of four layers have linear attention (gated DeltaNet)"},
        {"recurrent_gemma", "llama", "two of three layers are recurrent"},
        {"rwkv", "", "its layers are recurrent, which are not modelled"},
        {"seed_oss", "llama", "biases of q, k and v but not of the attention's output"},
        {"smollm3", "llama", "every fourth layer has no rotation"},
        {"stablelm", "llama", "a LayerNorm, and a quarter of each head is rotated"},
        {"starcoder2", "llama", "a LayerNorm, GELU without a gate, and biases"},
        {"t5", "", "an encoder and a decoder, which are not modelled together"},
        {"xlstm", "", "its layers are recurrent, which are not modelled"},
        {"zamba", "", kMamba},
        {"zamba2", "", kMamba}};
    return all;
}

/// For an unknown family: the nearest supported one, or the reason why none is near, guessed from the keys of the file.
std::pair<std::string, std::string> near_by_keys(const JsonReader& reader) {
    const auto any = [&](std::initializer_list<const char*> keys) {
        return std::any_of(keys.begin(), keys.end(), [&](const char* key) { return given(reader, key); });
    };
    if (any({"mamba_d_state", "ssm_state_size", "ssm_cfg", "mamba_num_heads", "state_size", "linear_num_key_heads"})) {
        return {"", "its keys are those of state-space layers or linear attention, which are not modelled"};
    }
    if (any({"encoder_layers", "decoder_layers", "num_decoder_layers"})) {
        return {"", "an encoder and a decoder, which are not modelled together"};
    }
    if (any({"kv_lora_rank"})) return {"deepseek_v3", ""};
    if (any({"num_experts", "num_local_experts", "n_routed_experts"})) return {"mixtral", ""};
    if (any({"rms_norm_eps"})) return {"llama", ""};
    if (any({"n_embd"})) return {"gpt2", ""};
    return {"", ""};
}

}  // namespace

void refuse_other_families(const JsonReader& reader, const std::vector<std::string>& known) {
    if (!given(reader, "model_type") || reader.kind("model_type") != JsonKind::string) return;
    const std::string type = reader.string("model_type");
    if (std::find(known.begin(), known.end(), type) != known.end()) return;
    std::string nearest, differs;
    const auto& others = other_families();
    const auto other =
        std::find_if(others.begin(), others.end(), [&](const auto& one) { return one.model_type == type; });
    if (other != others.end()) {
        nearest = other->nearest;
        differs = other->differs;
    } else {
        std::tie(nearest, differs) = near_by_keys(reader);
    }
    std::string list;
    for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
    if (!nearest.empty() && differs.empty()) list += "; by its keys the nearest is " + nearest;
    if (!nearest.empty() && !differs.empty()) list += "; the nearest is " + nearest + ", but " + differs;
    if (nearest.empty() && !differs.empty()) list += "; none is near: " + differs;
    reader.fail("model_type", list);
}

}  // namespace orrery::models
