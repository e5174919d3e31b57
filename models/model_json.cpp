// Writes and reads a ModelSpec as `orrery.model/1`.
#include "core/json_reader.h"
#include "models/model_checks.h"
#include "models/model_fields.h"
#include "models/model_spec.h"

namespace orrery::models {
namespace {

constexpr const char* kModelSchema = "orrery.model/1";

}  // namespace

std::string_view name_of(NormKind kind) {
    static constexpr auto kNames = name_table<NormKind::rms_norm>({"layer_norm", "rms_norm"});
    return kNames[kind];
}

std::string_view name_of(PositionKind kind) {
    static constexpr auto kNames = name_table<PositionKind::alibi>({"learned", "rotary", "alibi"});
    return kNames[kind];
}

std::string_view name_of(MlpKind kind) {
    static constexpr auto kNames = name_table<MlpKind::relu>({"gelu", "swiglu", "relu"});
    return kNames[kind];
}

std::string to_json_text(const ModelSpec& model) {
    JsonValue json = JsonValue::object();
    json.set("schema", JsonValue(kModelSchema));
    write_fields(json, model);
    return json.text(2) + "\n";
}

ModelSpec model_from_json(const JsonReader& reader) {
    reader.expect_schema(kModelSchema);
    reader.skip("source");  // origin of the figures in a hand-written file
    ModelSpec model;
    read_fields(reader, model);
    reader.finish();
    check_model(model, reader.file(), [&](const std::string& key) { return reader.pointer() + "/" + key; });
    return model;
}

ModelSpec model_from_json_text(const std::string& text, const std::string& file) {
    return model_from_json(JsonReader::parse(text, file));
}

}  // namespace orrery::models
