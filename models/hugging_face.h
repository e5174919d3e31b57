// What the readers of Hugging Face configurations share. Not for other rooms.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/json_reader.h"
#include "models/model_spec.h"

namespace orrery::models {

/// Our key -> theirs, for readers and for the errors of check_model. Of several names the file's own one is meant: some
/// configuration classes take the same value under an older name too.
using HuggingFaceKeys = std::map<std::string, std::vector<std::string>>;

struct HuggingFaceFamily {
    std::string model_type;
    std::string architecture;  // the class with the language model's head, as "architectures" names it
    ModelSpec (*read)(const JsonReader& reader, const HuggingFaceFamily& family) = nullptr;
    HuggingFaceKeys keys;
    /// Keys that this reader knows how to take, among those that other families must not have.
    std::vector<std::string> own_keys;
    bool tied_by_default = false;
};

/// gpt2, gpt_neox, opt, bloom, falcon and bert.
[[nodiscard]] const std::vector<HuggingFaceFamily>& gpt_families();
/// llama, mistral, qwen2, qwen3 and their relatives with experts or latent attention.
[[nodiscard]] const std::vector<HuggingFaceFamily>& llama_families();

/// Throws InputError where the file's model_type is known and is none that can be read, with the nearest of `known` and
/// what differs. Of one that nobody knows, the keys say what is near.
void refuse_other_families(const JsonReader& reader, const std::vector<std::string>& known);

/// Keys whose absence and null mean the same to transformers.
[[nodiscard]] bool given(const JsonReader& reader, const std::string& key);
/// null, false, 0, empty; with `one_is_off` also 1.
[[nodiscard]] bool switched_off(const JsonReader& reader, const std::string& key, bool one_is_off = false);
/// The file's name for our `key`. Two names that are both given must have the same value.
[[nodiscard]] std::string name_in(const JsonReader& reader, const HuggingFaceKeys& keys, const std::string& key);
/// `allowed` are the names of the one activation that we compute.
void expect_activation(const JsonReader& reader, const std::string& key, const std::vector<std::string>& allowed);

/// Number of layers and hidden width, in the range that check_model allows.
void read_size(const JsonReader& reader, const HuggingFaceFamily& family, ModelSpec& model);
/// hidden / heads, when the file has no head dimension of its own.
[[nodiscard]] std::int64_t head_dim_from(const JsonReader& reader, const HuggingFaceFamily& family,
                                         const ModelSpec& model);

struct RotaryKeys {
    std::string theta = "rope_theta";
    double theta_default = 10000.0;
    std::string fraction;  // empty: the whole head is rotated, and the file must not say otherwise
    double fraction_default = 1.0;
};
/// The keys above and rope_scaling (transformers 4), or rope_parameters (5), which holds all of it.
void read_rotary(const JsonReader& reader, const RotaryKeys& keys, ModelSpec& model);

}  // namespace orrery::models
