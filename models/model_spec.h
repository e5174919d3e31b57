// What is trained: the architecture of a decoder transformer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orrery {
class JsonReader;
}

namespace orrery::models {

enum class NormKind : std::uint8_t { layer_norm, rms_norm };
enum class PositionKind : std::uint8_t { learned, rotary };
enum class MlpKind : std::uint8_t { gelu, swiglu };  // gelu: the tanh form; swiglu: silu(gate) * up

struct ModelSpec {
    std::string name;    // as the user knows it, e.g. "llama3-70b"
    std::string family;  // Hugging Face model_type: gpt2, llama, mistral, qwen2, qwen3
    std::int64_t layers = 0;
    std::int64_t hidden = 0;      // h
    std::int64_t heads = 0;       // a
    std::int64_t kv_heads = 0;    // k; equals heads without grouped-query attention
    std::int64_t head_dim = 0;    // d
    std::int64_t ffn_hidden = 0;  // f, per matrix
    std::int64_t vocab = 0;       // V, before padding
    std::int64_t max_positions = 0;
    NormKind norm = NormKind::rms_norm;
    PositionKind position = PositionKind::rotary;
    MlpKind mlp = MlpKind::swiglu;
    bool qkv_bias = false;
    bool attention_output_bias = false;
    bool mlp_bias = false;
    bool qk_norm = false;  // RMSNorm of head_dim on q and k before the rotation (qwen3)
    bool tied_embeddings = false;
    double norm_epsilon = 1e-5;
    double rope_theta = 10000.0;
    /// Frequency scaling of rotary positions ("llama3" of Llama 3.1); factor 1 means none.
    struct RopeScaling {
        std::string type = "none";
        double factor = 1.0;
        double low_frequency_factor = 1.0;
        double high_frequency_factor = 1.0;
        std::int64_t original_max_positions = 0;
        bool operator==(const RopeScaling&) const = default;
    } rope_scaling;
    std::int64_t sliding_window = 0;  // 0: full causal attention
    bool operator==(const ModelSpec&) const = default;

    [[nodiscard]] std::int64_t q_width() const { return heads * head_dim; }
    [[nodiscard]] std::int64_t kv_width() const { return kv_heads * head_dim; }
    [[nodiscard]] std::int64_t mlp_in_width() const { return mlp == MlpKind::swiglu ? 2 * ffn_hidden : ffn_hidden; }
};

/// All parameters, tied ones once, vocabulary unpadded: what the published figures count.
[[nodiscard]] std::int64_t parameter_count(const ModelSpec& model);

/// How model FLOPs are counted when a rate or MFU is stated (REFERENCE: conventions differ, so always print which).
enum class FlopsConvention : std::uint8_t {
    palm,            // 6N + 12*L*a*d*s per token, N without the input embedding when it is untied
    full_attention,  // every matmul, attention as the full square (Megatron 2022, nanotron, llm-foundry)
    causal_half,     // every matmul, attention core halved (llm.c, Megatron-Core)
};
[[nodiscard]] std::string name_of(FlopsConvention convention);

/// Model FLOPs of forward + backward for one sequence of `sequence_length` tokens; no recomputation counted.
[[nodiscard]] double model_flops_per_sequence(const ModelSpec& model, std::int64_t sequence_length,
                                              FlopsConvention convention);

/// Throws InputError naming `source` and the key when a dimension is out of range or dimensions contradict each other.
void check_model(const ModelSpec& model, const std::string& source);

/// A model by zoo name ("llama3-70b"), by the path of a Hugging Face config.json or of a folder with one, or by the
/// path of an `orrery.model/1` file.
[[nodiscard]] ModelSpec load_model(const std::string& name_or_path);
/// model_type gpt2, llama, mistral, qwen2 and qwen3. Keys that do not matter here are passed over; keys that would
/// change the answer in a way that a ModelSpec cannot say (experts, other attention, other activations) are refused.
/// `unread`, when given, receives the keys that were passed over.
[[nodiscard]] ModelSpec read_hugging_face_config(const std::string& path, std::vector<std::string>* unread = nullptr);
/// Names of the zoo, sorted.
[[nodiscard]] std::vector<std::string> zoo_names();

/// The model as an `orrery.model/1` JSON object, and back; `from_json_text` names `file` in its errors.
[[nodiscard]] std::string to_json_text(const ModelSpec& model);
[[nodiscard]] ModelSpec model_from_json_text(const std::string& text, const std::string& file);
/// The same from an object inside another document, whose pointers the errors then carry.
[[nodiscard]] ModelSpec model_from_json(const JsonReader& reader);

}  // namespace orrery::models
