// Writes and reads a ModelSpec as `orrery.model/1`.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/json_reader.h"
#include "models/model_checks.h"
#include "models/model_limits.h"
#include "models/model_spec.h"

namespace orrery::models {
namespace {

constexpr const char* kSchema = "orrery.model/1";

std::string name_of(PositionKind kind) {
    switch (kind) {
        case PositionKind::learned:
            return "learned";
        case PositionKind::rotary:
            return "rotary";
        case PositionKind::alibi:
            return "alibi";
    }
    return "?";
}

std::string name_of(MlpKind kind) {
    switch (kind) {
        case MlpKind::gelu:
            return "gelu";
        case MlpKind::swiglu:
            return "swiglu";
        case MlpKind::relu:
            return "relu";
    }
    return "?";
}

/// The element of `kinds` with the name that the key has.
template <typename Kind>
Kind kind_from_json(const JsonReader& reader, const std::string& key, const std::vector<Kind>& kinds) {
    std::vector<std::string> names;
    names.reserve(kinds.size());
    for (const Kind kind : kinds) names.push_back(name_of(kind));
    const std::string name = reader.choice(key, names);
    return kinds[static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin())];
}

ModelSpec::RopeScaling rope_scaling_from_json(const JsonReader& reader) {
    ModelSpec::RopeScaling scaling;
    scaling.type = reader.choice("type", {"none", "linear", "llama3", "yarn"});
    if (scaling.type != "none") scaling.factor = reader.number("factor", kFactorLimits);
    if (scaling.type == "llama3") {
        scaling.low_frequency_factor = reader.number("low_frequency_factor", kFactorLimits);
        scaling.high_frequency_factor = reader.number("high_frequency_factor", kFactorLimits);
    }
    if (scaling.type == "llama3" || scaling.type == "yarn") {
        scaling.original_max_positions = reader.integer("original_max_positions", kPositionLimits);
    }
    if (scaling.type == "yarn") {
        scaling.beta_fast = reader.number("beta_fast", kFactorLimits);
        scaling.beta_slow = reader.number("beta_slow", kFactorLimits);
        scaling.mscale = reader.number_or("mscale", kScaleLimits, 0);
        scaling.mscale_all_dim = reader.number_or("mscale_all_dim", kScaleLimits, 0);
    }
    reader.finish();
    return scaling;
}

nlohmann::ordered_json to_json(const ModelSpec::RopeScaling& scaling) {
    nlohmann::ordered_json json;
    json["type"] = scaling.type;
    if (scaling.type == "none") return json;
    json["factor"] = scaling.factor;
    if (scaling.type == "linear") return json;
    if (scaling.type == "llama3") {
        json["low_frequency_factor"] = scaling.low_frequency_factor;
        json["high_frequency_factor"] = scaling.high_frequency_factor;
    }
    json["original_max_positions"] = scaling.original_max_positions;
    if (scaling.type == "yarn") {
        json["beta_fast"] = scaling.beta_fast;
        json["beta_slow"] = scaling.beta_slow;
        json["mscale"] = scaling.mscale;
        json["mscale_all_dim"] = scaling.mscale_all_dim;
    }
    return json;
}

MixtureOfExperts experts_from_json(const JsonReader& reader) {
    const MixtureOfExperts none;
    MixtureOfExperts moe;
    moe.expert_count = reader.integer("expert_count", kPositiveInteger);
    moe.top_k = reader.integer("top_k", kExpertLimits);
    moe.expert_ffn_hidden = reader.integer("expert_ffn_hidden", kExpertFfnHiddenLimits);
    moe.shared_ffn_hidden = reader.integer_or("shared_ffn_hidden", kSharedFfnHiddenLimits, none.shared_ffn_hidden);
    moe.first_dense_layers = reader.integer_or("first_dense_layers", {0, kLayerLimits.high}, none.first_dense_layers);
    moe.layer_interval = reader.integer_or("layer_interval", kLayerLimits, none.layer_interval);
    moe.score_correction_bias = reader.boolean_or("score_correction_bias", none.score_correction_bias);
    moe.shared_expert_gate = reader.boolean_or("shared_expert_gate", none.shared_expert_gate);
    moe.expert_groups = reader.integer_or("expert_groups", kExpertLimits, none.expert_groups);
    moe.top_k_groups = reader.integer_or("top_k_groups", kExpertLimits, none.top_k_groups);
    moe.sigmoid_scores = reader.boolean_or("sigmoid_scores", none.sigmoid_scores);
    moe.normalize_top_k = reader.boolean_or("normalize_top_k", none.normalize_top_k);
    moe.routed_scale = reader.number_or("routed_scale", kFactorLimits, none.routed_scale);
    reader.finish();
    return moe;
}

nlohmann::ordered_json to_json(const MixtureOfExperts& moe) {
    nlohmann::ordered_json json;
    json["expert_count"] = moe.expert_count;
    json["top_k"] = moe.top_k;
    json["expert_ffn_hidden"] = moe.expert_ffn_hidden;
    json["shared_ffn_hidden"] = moe.shared_ffn_hidden;
    json["first_dense_layers"] = moe.first_dense_layers;
    json["layer_interval"] = moe.layer_interval;
    json["score_correction_bias"] = moe.score_correction_bias;
    json["shared_expert_gate"] = moe.shared_expert_gate;
    json["expert_groups"] = moe.expert_groups;
    json["top_k_groups"] = moe.top_k_groups;
    json["sigmoid_scores"] = moe.sigmoid_scores;
    json["normalize_top_k"] = moe.normalize_top_k;
    json["routed_scale"] = moe.routed_scale;
    return json;
}

LatentAttention latent_from_json(const JsonReader& reader) {
    LatentAttention latent;
    latent.q_lora_rank = reader.integer("q_lora_rank", kRankLimits);
    latent.kv_lora_rank = reader.integer("kv_lora_rank", kPositiveInteger);
    latent.nope_head_dim = reader.integer("nope_head_dim", kHeadLimits);
    latent.rope_head_dim = reader.integer("rope_head_dim", kHeadLimits);
    latent.v_head_dim = reader.integer("v_head_dim", kHeadLimits);
    reader.finish();
    return latent;
}

nlohmann::ordered_json to_json(const LatentAttention& latent) {
    nlohmann::ordered_json json;
    json["q_lora_rank"] = latent.q_lora_rank;
    json["kv_lora_rank"] = latent.kv_lora_rank;
    json["nope_head_dim"] = latent.nope_head_dim;
    json["rope_head_dim"] = latent.rope_head_dim;
    json["v_head_dim"] = latent.v_head_dim;
    return json;
}

/// Optional keys, written only if they differ from the value of a plain decoder, which is their default.
void write_optional(const ModelSpec& model, nlohmann::ordered_json& json) {
    const ModelSpec plain;
    const auto write = [&](const char* key, auto ModelSpec::*field) {
        if (model.*field != plain.*field) json[key] = model.*field;
    };
    write("causal", &ModelSpec::causal);
    write("post_norm", &ModelSpec::post_norm);
    write("final_norm", &ModelSpec::final_norm);
    write("embedding_norm", &ModelSpec::embedding_norm);
    write("parallel_residual", &ModelSpec::parallel_residual);
    write("shared_input_norm", &ModelSpec::shared_input_norm);
    write("rotary_fraction", &ModelSpec::rotary_fraction);
    write("token_types", &ModelSpec::token_types);
    write("position_offset", &ModelSpec::position_offset);
    write("head_transform", &ModelSpec::head_transform);
    write("head_bias", &ModelSpec::head_bias);
    write("pooler", &ModelSpec::pooler);
    write("left_out", &ModelSpec::left_out);
    if (model.moe != plain.moe) json["moe"] = to_json(model.moe);
    if (model.latent != plain.latent) json["latent"] = to_json(model.latent);
}

void read_optional(const JsonReader& reader, ModelSpec& model) {
    const auto flag = [&](const char* key, bool& value) { value = reader.boolean_or(key, value); };
    const auto rows = [&](const char* key, std::int64_t& value) {
        value = reader.integer_or(key, kExtraRowLimits, value);
    };
    flag("causal", model.causal);
    flag("post_norm", model.post_norm);
    flag("final_norm", model.final_norm);
    flag("embedding_norm", model.embedding_norm);
    flag("parallel_residual", model.parallel_residual);
    flag("shared_input_norm", model.shared_input_norm);
    model.rotary_fraction = reader.number_or("rotary_fraction", kRotaryFractionLimits, model.rotary_fraction);
    rows("token_types", model.token_types);
    rows("position_offset", model.position_offset);
    flag("head_transform", model.head_transform);
    flag("head_bias", model.head_bias);
    flag("pooler", model.pooler);
    if (reader.has("moe")) model.moe = experts_from_json(reader.object("moe"));
    if (reader.has("latent")) model.latent = latent_from_json(reader.object("latent"));
    if (reader.has("left_out")) model.left_out = reader.strings("left_out");
}

}  // namespace

std::string to_json_text(const ModelSpec& model) {
    nlohmann::ordered_json json;
    json["schema"] = kSchema;
    json["name"] = model.name;
    json["family"] = model.family;
    json["layers"] = model.layers;
    json["hidden"] = model.hidden;
    json["heads"] = model.heads;
    json["kv_heads"] = model.kv_heads;
    json["head_dim"] = model.head_dim;
    json["ffn_hidden"] = model.ffn_hidden;
    json["vocab"] = model.vocab;
    json["max_positions"] = model.max_positions;
    json["norm"] = model.norm == NormKind::layer_norm ? "layer_norm" : "rms_norm";
    json["norm_epsilon"] = model.norm_epsilon;
    json["position"] = name_of(model.position);
    if (model.position == PositionKind::rotary) {
        json["rope_theta"] = model.rope_theta;
        json["rope_scaling"] = to_json(model.rope_scaling);
    }
    json["mlp"] = name_of(model.mlp);
    json["qkv_bias"] = model.qkv_bias;
    json["attention_output_bias"] = model.attention_output_bias;
    json["mlp_bias"] = model.mlp_bias;
    json["qk_norm"] = model.qk_norm;
    json["tied_embeddings"] = model.tied_embeddings;
    json["sliding_window"] = model.sliding_window;
    write_optional(model, json);
    return json.dump(2) + "\n";
}

ModelSpec model_from_json(const JsonReader& reader) {
    reader.expect_schema(kSchema);
    reader.skip("source");  // origin of the figures in a hand-written file
    ModelSpec model;
    model.name = reader.string("name");
    model.family = reader.choice("family", family_names());
    model.layers = reader.integer("layers", kLayerLimits);
    model.hidden = reader.integer("hidden", kHiddenLimits);
    model.heads = reader.integer("heads", kHeadLimits);
    model.kv_heads = reader.integer("kv_heads", kHeadLimits);
    model.head_dim = reader.integer("head_dim", kHeadLimits);
    model.ffn_hidden = reader.integer("ffn_hidden", kFfnHiddenLimits);
    model.vocab = reader.integer("vocab", kVocabLimits);
    model.max_positions = reader.integer("max_positions", kPositionLimits);
    model.norm =
        reader.choice("norm", {"layer_norm", "rms_norm"}) == "layer_norm" ? NormKind::layer_norm : NormKind::rms_norm;
    model.norm_epsilon = reader.number("norm_epsilon", kNormEpsilonLimits);
    model.position = kind_from_json<PositionKind>(reader, "position",
                                                  {PositionKind::learned, PositionKind::rotary, PositionKind::alibi});
    if (model.position == PositionKind::rotary) {
        model.rope_theta = reader.number("rope_theta", kThetaLimits);
        model.rope_scaling = rope_scaling_from_json(reader.object("rope_scaling"));
    }
    model.mlp = kind_from_json<MlpKind>(reader, "mlp", {MlpKind::gelu, MlpKind::swiglu, MlpKind::relu});
    model.qkv_bias = reader.boolean("qkv_bias");
    model.attention_output_bias = reader.boolean("attention_output_bias");
    model.mlp_bias = reader.boolean("mlp_bias");
    model.qk_norm = reader.boolean("qk_norm");
    model.tied_embeddings = reader.boolean("tied_embeddings");
    model.sliding_window = reader.integer("sliding_window", kWindowLimits);
    read_optional(reader, model);
    reader.finish();
    check_model(model, reader.file(), [&](const std::string& key) { return reader.pointer() + "/" + key; });
    return model;
}

ModelSpec model_from_json_text(const std::string& text, const std::string& file) {
    return model_from_json(JsonReader::parse(text, file));
}

}  // namespace orrery::models
