// A ModelSpec as `orrery.model/1` and back.
#include <nlohmann/json.hpp>

#include "core/json_reader.h"
#include "models/model_checks.h"
#include "models/model_spec.h"

namespace orrery::models {
namespace {

constexpr const char* kSchema = "orrery.model/1";

ModelSpec::RopeScaling rope_scaling_from_json(const JsonReader& reader) {
    ModelSpec::RopeScaling scaling;
    scaling.type = reader.choice("type", {"none", "llama3"});
    if (scaling.type != "none") {
        scaling.factor = reader.number("factor");
        scaling.low_frequency_factor = reader.number("low_frequency_factor");
        scaling.high_frequency_factor = reader.number("high_frequency_factor");
        scaling.original_max_positions = reader.integer("original_max_positions");
    }
    reader.finish();
    return scaling;
}

nlohmann::ordered_json to_json(const ModelSpec::RopeScaling& scaling) {
    nlohmann::ordered_json json;
    json["type"] = scaling.type;
    if (scaling.type == "none") return json;
    json["factor"] = scaling.factor;
    json["low_frequency_factor"] = scaling.low_frequency_factor;
    json["high_frequency_factor"] = scaling.high_frequency_factor;
    json["original_max_positions"] = scaling.original_max_positions;
    return json;
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
    json["position"] = model.position == PositionKind::learned ? "learned" : "rotary";
    if (model.position == PositionKind::rotary) {
        json["rope_theta"] = model.rope_theta;
        json["rope_scaling"] = to_json(model.rope_scaling);
    }
    json["mlp"] = model.mlp == MlpKind::gelu ? "gelu" : "swiglu";
    json["qkv_bias"] = model.qkv_bias;
    json["attention_output_bias"] = model.attention_output_bias;
    json["mlp_bias"] = model.mlp_bias;
    json["qk_norm"] = model.qk_norm;
    json["tied_embeddings"] = model.tied_embeddings;
    json["sliding_window"] = model.sliding_window;
    return json.dump(2) + "\n";
}

ModelSpec model_from_json(const JsonReader& reader) {
    reader.expect_schema(kSchema);
    reader.skip("source");  // where a hand-written file has its figures from
    ModelSpec model;
    model.name = reader.string("name");
    model.family = reader.choice("family", family_names());
    model.layers = reader.integer("layers");
    model.hidden = reader.integer("hidden");
    model.heads = reader.integer("heads");
    model.kv_heads = reader.integer("kv_heads");
    model.head_dim = reader.integer("head_dim");
    model.ffn_hidden = reader.integer("ffn_hidden");
    model.vocab = reader.integer("vocab");
    model.max_positions = reader.integer("max_positions");
    model.norm =
        reader.choice("norm", {"layer_norm", "rms_norm"}) == "layer_norm" ? NormKind::layer_norm : NormKind::rms_norm;
    model.norm_epsilon = reader.number("norm_epsilon");
    model.position =
        reader.choice("position", {"learned", "rotary"}) == "learned" ? PositionKind::learned : PositionKind::rotary;
    if (model.position == PositionKind::rotary) {
        model.rope_theta = reader.number("rope_theta");
        model.rope_scaling = rope_scaling_from_json(reader.object("rope_scaling"));
    }
    model.mlp = reader.choice("mlp", {"gelu", "swiglu"}) == "gelu" ? MlpKind::gelu : MlpKind::swiglu;
    model.qkv_bias = reader.boolean("qkv_bias");
    model.attention_output_bias = reader.boolean("attention_output_bias");
    model.mlp_bias = reader.boolean("mlp_bias");
    model.qk_norm = reader.boolean("qk_norm");
    model.tied_embeddings = reader.boolean("tied_embeddings");
    model.sliding_window = reader.integer("sliding_window");
    reader.finish();
    check_model(model, reader.file(), [&](const std::string& key) { return reader.pointer() + "/" + key; });
    return model;
}

ModelSpec model_from_json_text(const std::string& text, const std::string& file) {
    return model_from_json(JsonReader::parse(text, file));
}

}  // namespace orrery::models
