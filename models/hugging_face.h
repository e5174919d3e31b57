// Private to models/: shared by the readers of Hugging Face configurations.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/json_reader.h"
#include "models/model_spec.h"

namespace orrery::models {

/// Key of ModelSpec -> names of the key in Hugging Face files, for reading and for the errors of check_model. Some
/// configuration classes accept several names for a value; the one in the file is used.
using HuggingFaceKeys = std::map<std::string, std::vector<std::string>>;

struct HuggingFaceFamily {
    std::string model_type;
    std::string architecture;  // the class with the language model's head, as in "architectures"
    ModelSpec (*read)(const JsonReader& reader, const HuggingFaceFamily& family) = nullptr;
    HuggingFaceKeys keys;
    /// Keys that this reader understands although other families must not have them.
    std::vector<std::string> own_keys;
    bool tied_by_default = false;
};

/// gpt2, gpt_neox, opt, bloom, falcon and bert.
[[nodiscard]] const std::vector<HuggingFaceFamily>& gpt_families();
/// llama, mistral, qwen2, qwen3 and their relatives with experts or latent attention.
[[nodiscard]] const std::vector<HuggingFaceFamily>& llama_families();

/// Throws InputError if the file's model_type is not in `known`, naming the nearest known family and the differences.
/// For a model_type that is unknown here, the nearest family is guessed from the file's keys.
void refuse_other_families(const JsonReader& reader, const std::vector<std::string>& known);

/// The key is present and not null; for keys whose absence and null mean the same to transformers.
[[nodiscard]] bool given(const JsonReader& reader, const std::string& key);
/// The value is null, false, 0 or empty; with `one_is_off` also 1.
[[nodiscard]] bool switched_off(const JsonReader& reader, const std::string& key, bool one_is_off = false);
/// The file's name for the ModelSpec key. If two names are given, they must have the same value.
[[nodiscard]] std::string name_in(const JsonReader& reader, const HuggingFaceKeys& keys, const std::string& key);
/// Refuses other values of `key` than `allowed`, the names of the only supported activation.
void expect_activation(const JsonReader& reader, const std::string& key, const std::vector<std::string>& allowed);

/// Reads the number of layers and the hidden width, in the range that check_model allows.
void read_size(const JsonReader& reader, const HuggingFaceFamily& family, ModelSpec& model);
/// hidden / heads, for files without a head dimension.
[[nodiscard]] std::int64_t head_dim_from(const JsonReader& reader, const HuggingFaceFamily& family,
                                         const ModelSpec& model);

struct RotaryKeys {
    std::string theta = "rope_theta";
    double theta_default = 10000.0;
    std::string fraction;  // empty: the whole head is rotated, and the file must not contradict that
    double fraction_default = 1.0;
};
/// Reads the keys above and rope_scaling (transformers 4), or rope_parameters (5), which contains both.
void read_rotary(const JsonReader& reader, const RotaryKeys& keys, ModelSpec& model);

}  // namespace orrery::models
