// Reads a Hugging Face config.json into a ModelSpec. The meaning of keys and their defaults follow the configuration
// class of the same model_type in the transformers library (releases 4 and 5).
#include "models/hugging_face.h"

#include <algorithm>
#include <filesystem>

#include "core/file.h"
#include "models/model_checks.h"
#include "models/model_limits.h"

namespace orrery::models {
namespace {

/// Keys for features that a ModelSpec cannot express. Refused unless the value switches the feature off (null, false,
/// 0, empty) or the family lists the key among its own.
const std::vector<std::string> kUnsupportedKeys{
    // experts
    "num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size",
    "first_k_dense_replace", "mlp_only_layers", "n_shared_experts", "shared_expert_intermediate_size",
    // other attention and other block layouts
    "kv_lora_rank", "q_lora_rank", "alibi", "parallel_attn", "use_parallel_residual", "new_decoder_architecture",
    "multi_query", "attention_chunk_size", "no_rope_layers", "use_qk_norm", "qk_norm", "qk_layernorm",
    "attn_logit_softcapping", "final_logit_softcapping", "add_cross_attention", "cross_attention_layers",
    "is_encoder_decoder", "scale_attn_by_inverse_layer_idx", "pruned_heads", "num_nextn_predict_layers",
    "apply_residual_connection_post_layernorm"};
/// The same for multipliers, which 1 also switches off.
const std::vector<std::string> kUnsupportedFactors{"partial_rotary_factor", "rotary_pct",
                                                   "attention_multiplier",  "embedding_multiplier",
                                                   "residual_multiplier",   "logits_scaling"};
/// Known keys that do not affect what a training step computes or costs: special tokens, text generation, weight
/// initialisation, the storage type and dropout (which the plan sets itself), the weight of the router's balancing
/// loss, and implementation choices with the same result.
const std::vector<std::string> kIrrelevantKeys{"architectures",
                                               "auto_map",
                                               "bos_token_id",
                                               "eos_token_id",
                                               "pad_token_id",
                                               "unk_token_id",
                                               "prefix",
                                               "dtype",
                                               "torch_dtype",
                                               "transformers_version",
                                               "initializer_range",
                                               "init_std",
                                               "use_cache",
                                               "attention_dropout",
                                               "attention_probs_dropout_prob",
                                               "hidden_dropout",
                                               "hidden_dropout_prob",
                                               "classifier_dropout",
                                               "activation_dropout",
                                               "dropout",
                                               "layerdrop",
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
                                               "output_router_logits",
                                               "router_aux_loss_coef",
                                               "aux_loss_alpha",
                                               "seq_aux",
                                               "ep_size",
                                               "attention_softmax_in_fp32",
                                               "bias_dropout_fusion",
                                               "masked_softmax_fusion",
                                               "offset_alibi",
                                               "skip_bias_add",
                                               "skip_bias_add_qkv",
                                               "slow_but_exact",
                                               "_name_or_path",
                                               "_source",
                                               "gradient_checkpointing"};

/// All supported families, sorted by model_type.
const std::vector<HuggingFaceFamily>& families() {
    static const std::vector<HuggingFaceFamily> all = [] {
        std::vector<HuggingFaceFamily> list = gpt_families();
        list.insert(list.end(), llama_families().begin(), llama_families().end());
        std::sort(list.begin(), list.end(),
                  [](const HuggingFaceFamily& a, const HuggingFaceFamily& b) { return a.model_type < b.model_type; });
        return list;
    }();
    return all;
}

void refuse_unsupported(const JsonReader& reader, const HuggingFaceFamily& family) {
    const auto own = [&](const std::string& key) {
        return std::find(family.own_keys.begin(), family.own_keys.end(), key) != family.own_keys.end();
    };
    for (const std::string& key : kUnsupportedKeys) {
        if (!own(key) && reader.has(key) && !switched_off(reader, key)) {
            reader.fail(key, "absent or switched off (null, false, 0) in the " + family.model_type + " family");
        }
    }
    for (const std::string& key : kUnsupportedFactors) {
        if (!own(key) && given(reader, key) && !switched_off(reader, key, true)) reader.fail(key, "absent or 1");
    }
    if (family.model_type != "bert" && given(reader, "is_causal") && !reader.boolean("is_causal")) {
        reader.fail("is_causal", "true or absent in the " + family.model_type + " family");
    }
    for (const std::string& key : kIrrelevantKeys) reader.skip(key);
}

/// The object of the language model: multimodal files have it under text_config.
JsonReader language_model(const JsonReader& top) {
    return given(top, "text_config") ? top.object("text_config") : top;
}

/// Sections of image and audio towers: vision_config, audio_config, vision_tower and the like, but not sections that
/// describe weights or generation.
std::vector<std::string> towers_of(const JsonReader& object) {
    static const std::vector<std::string> others{"text_config", "quantization_config", "compression_config",
                                                 "generation_config", "rope_config"};
    std::vector<std::string> towers;
    for (const std::string& key : object.keys()) {
        const bool named = key.ends_with("_config") || key.ends_with("_tower") || key.ends_with("_cfg");
        if (!named || std::find(others.begin(), others.end(), key) != others.end()) continue;
        if (!switched_off(object, key)) towers.push_back(key);
    }
    return towers;
}

/// Replaces Infinity and NaN, which Python writes although JSON has no such numbers, by null.
std::string without_non_finite(const std::string& text) {
    std::string result;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string) {
            result += c;
            if (c == '\\' && i + 1 < text.size()) {
                result += text[++i];
            } else if (c == '"') {
                in_string = false;
            }
            continue;
        }
        in_string = c == '"';
        const std::string_view rest = std::string_view(text).substr(i);
        std::size_t length = 0;
        for (const std::string_view name : {"Infinity", "-Infinity", "NaN"}) {
            if (rest.starts_with(name)) length = name.size();
        }
        if (length == 0) {
            result += c;
        } else {
            result += "null";
            i += length - 1;
        }
    }
    return result;
}

void leave_out(ModelSpec& model, const JsonReader& object, const std::string& key, const std::string& why) {
    object.skip(key);
    model.left_out.push_back((object.pointer() + "/" + key + ": " + object.shown(key) + " (" + why + ")").substr(1));
}

/// Records the keys of `object` that the model does not represent.
void note_rest(ModelSpec& model, const JsonReader& object) {
    const auto noted = [&](const char* key, const char* why) {
        if (!object.has(key)) return;
        if (switched_off(object, key)) {
            object.skip(key);
        } else {
            leave_out(model, object, key, why);
        }
    };
    const char* const extra_layers = "num_nextn_predict_layers";
    if (object.has(extra_layers) && !switched_off(object, extra_layers)) {
        model.left_out_prediction_layers = object.integer(extra_layers, kPredictionLayerLimits);
    }
    noted(extra_layers, "layers that predict further tokens are not modelled");
    noted("quantization_config", "training is in the plan's precision");
    for (const std::string& key : object.unread_keys()) leave_out(model, object, key, "not known");
}

const HuggingFaceFamily& read_family(const JsonReader& reader) {
    const std::vector<HuggingFaceFamily>& known = families();
    const bool has_architecture = given(reader, "architectures") && reader.size("architectures") > 0;
    auto by_architecture = known.end();
    if (has_architecture) {
        const std::string name = reader.strings("architectures").front();
        by_architecture = std::find_if(known.begin(), known.end(),
                                       [&](const HuggingFaceFamily& family) { return family.architecture == name; });
    }
    auto family = by_architecture;
    if (given(reader, "model_type") || by_architecture == known.end()) {
        // Kimi K2 has DeepSeek-V3's architecture and names it in "architectures".
        std::vector<std::string> types = family_names();
        types.emplace_back("kimi_k2");
        refuse_other_families(reader, types);
        std::string type = reader.choice("model_type", types);
        if (type == "kimi_k2") type = "deepseek_v3";
        family = std::find_if(known.begin(), known.end(),
                              [&](const HuggingFaceFamily& one) { return one.model_type == type; });
    }
    if (has_architecture && by_architecture != family) {
        reader.fail("architectures",
                    "[\"" + family->architecture + "\"] for model_type \"" + family->model_type + "\"");
    }
    return *family;
}

/// "llama3-8b" for both llama3-8b.json and llama3-8b/config.json.
std::string name_from(const std::string& path) {
    const std::filesystem::path file = std::filesystem::absolute(path).lexically_normal();
    const std::filesystem::path folder = file.parent_path().filename();
    if (file.stem() == "config" && !folder.empty()) return folder.string();
    return file.stem().string();
}

/// The JSON pointer in the file for check_model's `key`.
std::string pointer_to(const JsonReader& reader, const HuggingFaceFamily& family, const std::string& key) {
    std::string theirs = name_in(reader, family.keys, key);
    const std::string old = "rope_scaling/";
    if (theirs.starts_with(old)) {
        static const HuggingFaceKeys rotary{{"low_frequency_factor", {"low_freq_factor"}},
                                            {"high_frequency_factor", {"high_freq_factor"}},
                                            {"original_max_positions", {"original_max_position_embeddings"}}};
        const std::string figure = theirs.substr(old.size());
        const auto found = rotary.find(figure);
        theirs = (reader.has("rope_parameters") ? "rope_parameters/" : old) +
                 (found == rotary.end() ? figure : found->second.front());
    }
    return reader.pointer() + "/" + theirs;
}

}  // namespace

const std::vector<std::string>& family_names() {
    static const std::vector<std::string> names = [] {
        std::vector<std::string> list;
        for (const HuggingFaceFamily& family : families()) list.push_back(family.model_type);
        return list;
    }();
    return names;
}

ModelSpec read_hugging_face_config(const std::string& path, ModelParts parts) {
    return hugging_face_from_text(read_text_file(path), path, parts);
}

ModelSpec hugging_face_from_text(const std::string& text, const std::string& path, ModelParts parts) {
    const JsonReader top = JsonReader::parse(without_non_finite(text), path, JsonPolicy::lenient);
    const JsonReader reader = language_model(top);
    const HuggingFaceFamily& family = read_family(reader);
    const std::vector<std::string> towers = towers_of(top);
    if (!towers.empty() && parts == ModelParts::whole) {
        top.fail(towers.front(), "absent: only language models are supported; --text-only takes that part alone");
    }
    const char* const extra_layers = "num_nextn_predict_layers";
    if (given(reader, extra_layers) && !switched_off(reader, extra_layers) && parts == ModelParts::whole) {
        reader.fail(extra_layers,
                    "0: layers that predict further tokens are not modelled; --text-only leaves them out");
    }
    refuse_unsupported(reader, family);
    ModelSpec model = family.read(reader, family);
    model.family = family.model_type;
    model.name = name_from(path);
    // Multimodal files have the key at the top level.
    const bool tied_by_default = top.boolean_or("tie_word_embeddings", family.tied_by_default);
    model.tied_embeddings = reader.boolean_or("tie_word_embeddings", tied_by_default);
    check_model(model, reader.file(), [&](const std::string& key) { return pointer_to(reader, family, key); });
    for (const std::string& tower : towers) leave_out(model, top, tower, "the language model alone");
    note_rest(model, reader);
    if (given(top, "text_config")) {
        for (const std::string& key : kIrrelevantKeys) top.skip(key);
        top.skip("model_type");
        note_rest(model, top);
    }
    return model;
}

}  // namespace orrery::models
