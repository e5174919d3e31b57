// Hugging Face config.json -> ModelSpec. What a key means, and what its absence means, follows the configuration class
// of the same model_type in the transformers library (releases 4 and 5).
#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "core/file.h"
#include "core/json_reader.h"
#include "models/model_checks.h"
#include "models/model_spec.h"

namespace orrery::models {
namespace {

using KeyMap = std::map<std::string, std::string>;

/// Ours -> theirs, for the errors of check_model.
const KeyMap kGpt2Keys{{"layers", "n_layer"},
                       {"hidden", "n_embd"},
                       {"heads", "n_head"},
                       {"kv_heads", "n_head"},
                       {"head_dim", "n_embd"},
                       {"ffn_hidden", "n_inner"},
                       {"max_positions", "n_positions"},
                       {"vocab", "vocab_size"},
                       {"norm_epsilon", "layer_norm_epsilon"}};
const KeyMap kLlamaKeys{{"layers", "num_hidden_layers"},
                        {"hidden", "hidden_size"},
                        {"heads", "num_attention_heads"},
                        {"kv_heads", "num_key_value_heads"},
                        {"ffn_hidden", "intermediate_size"},
                        {"vocab", "vocab_size"},
                        {"max_positions", "max_position_embeddings"},
                        {"norm_epsilon", "rms_norm_eps"},
                        {"rope_scaling/factor", "rope_scaling/factor"},
                        {"rope_scaling/low_frequency_factor", "rope_scaling/low_freq_factor"},
                        {"rope_scaling/high_frequency_factor", "rope_scaling/high_freq_factor"},
                        {"rope_scaling/original_max_positions", "rope_scaling/original_max_position_embeddings"}};

/// The causal language model's class of each family, as "architectures" names it.
const KeyMap kArchitectures{{"GPT2LMHeadModel", "gpt2"},
                            {"LlamaForCausalLM", "llama"},
                            {"MistralForCausalLM", "mistral"},
                            {"Qwen2ForCausalLM", "qwen2"},
                            {"Qwen3ForCausalLM", "qwen3"}};

/// Keys that ask for something a ModelSpec cannot say, unless their value switches it off: null, false, 0, empty.
const std::vector<std::string> kUnsupportedKeys{
    // experts
    "num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size",
    "first_k_dense_replace", "mlp_only_layers", "n_shared_experts",
    // other attention and other block layouts
    "kv_lora_rank", "q_lora_rank", "alibi", "parallel_attn", "use_parallel_residual", "new_decoder_architecture",
    "multi_query", "attention_chunk_size", "no_rope_layers", "use_qk_norm", "qk_norm", "qk_layernorm",
    "attn_logit_softcapping", "final_logit_softcapping", "add_cross_attention", "cross_attention_layers",
    "is_encoder_decoder", "scale_attn_by_inverse_layer_idx", "pruned_heads", "num_nextn_predict_layers",
    // weights that are not trained as they stand
    "quantization_config"};
/// The same for multipliers, which 1 switches off as well.
const std::vector<std::string> kUnsupportedFactors{"partial_rotary_factor", "rotary_pct",
                                                   "attention_multiplier",  "embedding_multiplier",
                                                   "residual_multiplier",   "logits_scaling"};
/// Keys that are understood and do not bear on what a training step computes or costs: names of tokens, how text is
/// generated, how weights start, the type they are stored in (the plan has its own), and dropout (likewise).
const std::vector<std::string> kIrrelevantKeys{"architectures",
                                               "auto_map",
                                               "bos_token_id",
                                               "eos_token_id",
                                               "pad_token_id",
                                               "dtype",
                                               "torch_dtype",
                                               "transformers_version",
                                               "initializer_range",
                                               "use_cache",
                                               "attention_dropout",
                                               "attn_pdrop",
                                               "embd_pdrop",
                                               "resid_pdrop",
                                               "pretraining_tp",
                                               "n_ctx",
                                               "reorder_and_upcast_attn",
                                               "summary_activation",
                                               "summary_first_dropout",
                                               "summary_proj_to_labels",
                                               "summary_type",
                                               "summary_use_proj",
                                               "task_specific_params",
                                               "max_window_layers",
                                               "_name_or_path",
                                               "_source",
                                               "gradient_checkpointing"};

/// Keys whose absence and null mean the same to transformers.
bool given(const JsonReader& reader, const std::string& key) {
    return reader.has(key) && !reader.is_null(key);
}

bool switched_off(const JsonReader& reader, const std::string& key, bool one_is_off) {
    switch (reader.kind(key)) {
        case JsonKind::null:
            return true;
        case JsonKind::boolean:
            return !reader.boolean(key);
        case JsonKind::integer:
        case JsonKind::number:
            return reader.number(key) == 0 || (one_is_off && reader.number(key) == 1);
        case JsonKind::string:
            return false;
        case JsonKind::array:
            return reader.size(key) == 0;
        case JsonKind::object:
            return reader.object(key).keys().empty();
    }
    return false;
}

void refuse_unsupported(const JsonReader& reader) {
    for (const std::string& key : kUnsupportedKeys) {
        if (reader.has(key) && !switched_off(reader, key, false)) {
            reader.fail(key, "absent or switched off (null, false, 0): dense decoders of the known families only");
        }
    }
    for (const std::string& key : kUnsupportedFactors) {
        if (given(reader, key) && !switched_off(reader, key, true)) reader.fail(key, "absent or 1");
    }
    for (const std::string& key : kIrrelevantKeys) reader.skip(key);
}

/// `allowed` are the names of the one activation that we compute.
void expect_activation(const JsonReader& reader, const std::string& key, const std::vector<std::string>& allowed) {
    if (reader.has(key)) (void)reader.choice(key, allowed);
}

ModelSpec read_gpt2(const JsonReader& reader) {
    expect_activation(reader, "activation_function", {"gelu_new", "gelu_pytorch_tanh"});
    if (reader.has("scale_attn_weights") && !reader.boolean("scale_attn_weights")) {
        reader.fail("scale_attn_weights", "true");
    }
    ModelSpec model;
    model.layers = reader.integer("n_layer");
    model.hidden = reader.integer("n_embd", kPositiveInteger);
    model.heads = reader.integer("n_head", kPositiveInteger);
    if (model.hidden % model.heads != 0) {
        reader.fail("n_head", "a divisor of n_embd, " + std::to_string(model.hidden));
    }
    model.kv_heads = model.heads;
    model.head_dim = model.hidden / model.heads;
    model.ffn_hidden = given(reader, "n_inner") ? reader.integer("n_inner") : 4 * model.hidden;
    model.vocab = reader.integer("vocab_size");
    model.max_positions = reader.integer("n_positions");
    model.norm = NormKind::layer_norm;
    model.position = PositionKind::learned;
    model.mlp = MlpKind::gelu;
    model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
    model.norm_epsilon = reader.number_or("layer_norm_epsilon", kPositive, 1e-5);
    return model;
}

/// rope_theta and rope_scaling (transformers 4), or rope_parameters (5), which holds both.
void read_rotary(const JsonReader& reader, ModelSpec& model) {
    model.rope_theta = reader.number_or("rope_theta", kPositive, 10000.0);
    std::optional<JsonReader> parameters;
    if (given(reader, "rope_scaling")) parameters = reader.object("rope_scaling");
    if (given(reader, "rope_parameters")) {
        parameters = reader.object("rope_parameters");
        const double theta = parameters->number_or("rope_theta", kPositive, model.rope_theta);
        if (reader.has("rope_theta") && theta != model.rope_theta) {
            reader.fail("rope_theta", "the same as /rope_parameters/rope_theta");
        }
        model.rope_theta = theta;
    }
    if (!parameters) return;
    const std::string partial = "partial_rotary_factor";
    if (given(*parameters, partial) && !switched_off(*parameters, partial, true)) {
        parameters->fail(partial, "absent or 1");
    }
    const std::string type_key = parameters->has("type") && !parameters->has("rope_type") ? "type" : "rope_type";
    if (parameters->choice(type_key, {"default", "llama3"}) == "default") return;
    model.rope_scaling.type = "llama3";
    model.rope_scaling.factor = parameters->number("factor");
    model.rope_scaling.low_frequency_factor = parameters->number("low_freq_factor");
    model.rope_scaling.high_frequency_factor = parameters->number("high_freq_factor");
    model.rope_scaling.original_max_positions = parameters->integer("original_max_position_embeddings");
}

/// All layers alike, or the error: "full_attention" everywhere is true, "sliding_attention" everywhere false.
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

std::int64_t read_sliding_window(const JsonReader& reader, const ModelSpec& model) {
    // Mistral's window is on unless it is null, and 4096 when nothing is said; Qwen's has a switch of its own.
    bool on = model.family == "mistral";
    if (model.family == "qwen2" || model.family == "qwen3") {
        on = reader.boolean_or("use_sliding_window", false);
        if (on && !reader.has("layer_types")) {
            // Layers before this one see everything.
            const std::int64_t first = reader.integer("max_window_layers", kCount);
            if (first >= model.layers) on = false;
            if (on && first > 0) reader.fail("max_window_layers", "0 or the number of layers: all layers alike");
        }
    }
    if (reader.has("layer_types")) {
        const bool full = all_layers_full(reader);
        if (!full && !on) reader.fail("layer_types", "\"full_attention\" in every layer, for the window is off");
        if (full) on = false;
    }
    if (!on) {
        if (model.family == "llama" && given(reader, "sliding_window")) {
            reader.fail("sliding_window", "absent or null in the llama family");
        }
        reader.skip("sliding_window");
        return 0;
    }
    if (model.family == "mistral" && !reader.has("sliding_window")) return 4096;
    if (model.family == "mistral" && reader.is_null("sliding_window")) return 0;
    return reader.integer("sliding_window", kPositiveInteger);
}

void read_heads(const JsonReader& reader, ModelSpec& model) {
    model.heads = reader.integer("num_attention_heads", kPositiveInteger);
    if (given(reader, "num_key_value_heads")) {
        model.kv_heads = reader.integer("num_key_value_heads");
    } else if (model.family == "llama" || reader.has("num_key_value_heads")) {
        model.kv_heads = model.heads;
    } else {
        // transformers would take a number that fits only its default model.
        model.kv_heads = reader.integer("num_key_value_heads", kPositiveInteger);
    }
    if (given(reader, "head_dim")) {
        model.head_dim = reader.integer("head_dim");
        return;
    }
    if (model.family == "qwen3") model.head_dim = reader.integer("head_dim", kPositiveInteger);
    if (model.hidden % model.heads != 0) {
        reader.fail("num_attention_heads",
                    "a divisor of hidden_size, " + std::to_string(model.hidden) + ", when head_dim is absent");
    }
    model.head_dim = model.hidden / model.heads;
}

ModelSpec read_llama_like(const JsonReader& reader, const std::string& family) {
    expect_activation(reader, "hidden_act", {"silu", "swish"});
    ModelSpec model;
    model.family = family;
    model.layers = reader.integer("num_hidden_layers");
    model.hidden = reader.integer("hidden_size", kPositiveInteger);
    read_heads(reader, model);
    model.ffn_hidden = reader.integer("intermediate_size");
    model.vocab = reader.integer("vocab_size");
    model.max_positions = reader.integer("max_position_embeddings");
    model.norm_epsilon = reader.number_or("rms_norm_eps", kPositive, 1e-6);
    read_rotary(reader, model);
    model.sliding_window = read_sliding_window(reader, model);
    if (family == "llama" || family == "qwen3") {
        model.qkv_bias = model.attention_output_bias = reader.boolean_or("attention_bias", false);
    }
    if (family == "llama") model.mlp_bias = reader.boolean_or("mlp_bias", false);
    if (family == "qwen2") model.qkv_bias = true;  // no key says so
    model.qk_norm = family == "qwen3";
    return model;
}

/// The language model's own object: multimodal files keep it under text_config.
JsonReader language_model(const JsonReader& top) {
    return given(top, "text_config") ? top.object("text_config") : top;
}

std::string read_family(const JsonReader& reader) {
    std::string by_architecture;
    const bool has_architecture = given(reader, "architectures") && reader.size("architectures") > 0;
    if (has_architecture) {
        const auto found = kArchitectures.find(reader.strings("architectures").front());
        if (found != kArchitectures.end()) by_architecture = found->second;
    }
    std::string family = by_architecture;
    if (given(reader, "model_type") || by_architecture.empty()) family = reader.choice("model_type", family_names());
    if (has_architecture && by_architecture != family) {
        std::string name;
        for (const auto& [architecture, its_family] : kArchitectures) {
            if (its_family == family) name = architecture;
        }
        reader.fail("architectures", "[\"" + name + "\"] for model_type \"" + family + "\"");
    }
    return family;
}

/// "llama3-8b" of both llama3-8b.json and llama3-8b/config.json.
std::string name_from(const std::string& path) {
    const std::filesystem::path file = std::filesystem::absolute(path).lexically_normal();
    const std::filesystem::path folder = file.parent_path().filename();
    if (file.stem() == "config" && !folder.empty()) return folder.string();
    return file.stem().string();
}

}  // namespace

ModelSpec read_hugging_face_config(const std::string& path, std::vector<std::string>* unread) {
    return hugging_face_from_text(read_text_file(path), path, unread);
}

ModelSpec hugging_face_from_text(const std::string& text, const std::string& path, std::vector<std::string>* unread) {
    const JsonReader top = JsonReader::parse(text, path, JsonPolicy::lenient);
    const JsonReader reader = language_model(top);
    const std::string family = read_family(reader);
    refuse_unsupported(reader);
    ModelSpec model = family == "gpt2" ? read_gpt2(reader) : read_llama_like(reader, family);
    model.family = family;
    model.name = name_from(path);
    // Multimodal files say it for the whole.
    const bool tied_by_default = top.boolean_or("tie_word_embeddings", family == "gpt2");
    model.tied_embeddings = reader.boolean_or("tie_word_embeddings", tied_by_default);

    const KeyMap& keys = family == "gpt2" ? kGpt2Keys : kLlamaKeys;
    check_model(model, reader.file(), [&](const std::string& key) {
        const auto found = keys.find(key);
        std::string theirs = found == keys.end() ? key : found->second;
        const std::string old = "rope_scaling/";
        if (theirs.starts_with(old) && reader.has("rope_parameters")) {
            theirs = "rope_parameters/" + theirs.substr(old.size());
        }
        return reader.pointer() + "/" + theirs;
    });
    if (unread != nullptr) *unread = reader.unread_keys();
    return model;
}

}  // namespace orrery::models
