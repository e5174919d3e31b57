// Functions shared by the readers of Hugging Face configurations.
#include <algorithm>
#include <optional>

#include "models/hugging_face.h"
#include "models/model_limits.h"

namespace orrery::models {

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
            return reader.number(key, kAnyNumber) == 0 || (one_is_off && reader.number(key, kAnyNumber) == 1);
        case JsonKind::string:
            return false;
        case JsonKind::array:
            return reader.size(key) == 0;
        case JsonKind::object:
            return reader.object(key).keys().empty();
    }
    return false;
}

std::string name_in(const JsonReader& reader, const HuggingFaceKeys& keys, const std::string& key) {
    const auto found = keys.find(key);
    if (found == keys.end()) return key;
    std::string name;
    for (const std::string& candidate : found->second) {
        if (!given(reader, candidate)) continue;
        if (name.empty()) {
            name = candidate;
        } else if (reader.number(candidate, kAnyNumber) != reader.number(name, kAnyNumber)) {
            reader.fail(candidate, "the same as /" + name);
        }
    }
    return name.empty() ? found->second.front() : name;
}

void expect_activation(const JsonReader& reader, const std::string& key, const std::vector<std::string>& allowed) {
    if (reader.has(key)) (void)reader.choice(key, allowed);
}

void read_size(const JsonReader& reader, const HuggingFaceFamily& family, ModelSpec& model) {
    model.layers = reader.integer(name_in(reader, family.keys, "layers"), kLayerLimits);
    model.hidden = reader.integer(name_in(reader, family.keys, "hidden"), kHiddenLimits);
}

std::int64_t head_dim_from(const JsonReader& reader, const HuggingFaceFamily& family, const ModelSpec& model) {
    if (model.hidden % model.heads != 0) {
        reader.fail(name_in(reader, family.keys, "heads"),
                    "a divisor of " + name_in(reader, family.keys, "hidden") + ", " + std::to_string(model.hidden));
    }
    return model.hidden / model.heads;
}

namespace {

ModelSpec::RopeScaling read_rope_scaling(const JsonReader& reader) {
    ModelSpec::RopeScaling scaling;
    const std::string type_key = reader.has("type") && !reader.has("rope_type") ? "type" : "rope_type";
    const std::string type = reader.choice(type_key, {"default", "linear", "llama3", "yarn"});
    if (type == "default") return scaling;
    scaling.type = type;
    scaling.factor = reader.number("factor", kFactorLimits);
    if (type == "llama3") {
        scaling.low_frequency_factor = reader.number("low_freq_factor", kFactorLimits);
        scaling.high_frequency_factor = reader.number("high_freq_factor", kFactorLimits);
    }
    if (type == "llama3" || type == "yarn") {
        scaling.original_max_positions = reader.integer("original_max_position_embeddings", kPositionLimits);
    }
    if (type == "yarn") {
        for (const char* key : {"attention_factor", "truncate"}) {
            if (given(reader, key)) reader.fail(key, "absent or null");
        }
        scaling.beta_fast = reader.number_or("beta_fast", kFactorLimits, 32);
        scaling.beta_slow = reader.number_or("beta_slow", kFactorLimits, 1);
        scaling.mscale = reader.number_or("mscale", kScaleLimits, 0);
        scaling.mscale_all_dim = reader.number_or("mscale_all_dim", kScaleLimits, 0);
    }
    return scaling;
}

}  // namespace

void read_rotary(const JsonReader& reader, const RotaryKeys& keys, ModelSpec& model) {
    const std::string partial = "partial_rotary_factor";
    model.rope_theta = reader.number_or(keys.theta, kThetaLimits, keys.theta_default);
    if (!keys.fraction.empty())
        model.rotary_fraction = reader.number_or(keys.fraction, kRotaryFractionLimits, keys.fraction_default);
    std::optional<JsonReader> parameters;
    if (given(reader, "rope_scaling")) parameters = reader.object("rope_scaling");
    if (given(reader, "rope_parameters")) {
        parameters = reader.object("rope_parameters");
        const double theta = parameters->number_or("rope_theta", kThetaLimits, model.rope_theta);
        if (reader.has(keys.theta) && theta != model.rope_theta) {
            reader.fail(keys.theta, "the same as /rope_parameters/rope_theta");
        }
        model.rope_theta = theta;
    }
    if (!parameters) return;
    if (given(*parameters, partial)) {
        const double fraction = parameters->number(partial, kRotaryFractionLimits);
        if (keys.fraction.empty() && !switched_off(*parameters, partial, true)) {
            parameters->fail(partial, "absent or 1");
        }
        if (!keys.fraction.empty()) {
            if (reader.has(keys.fraction) && fraction != model.rotary_fraction) {
                reader.fail(keys.fraction, "the same as /rope_parameters/" + partial);
            }
            model.rotary_fraction = fraction;
        }
    }
    model.rope_scaling = read_rope_scaling(*parameters);
}

}  // namespace orrery::models
