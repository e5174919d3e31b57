// What is trained: the architecture of a transformer, a decoder or a bidirectional encoder (bert).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orrery {
class JsonReader;
}

namespace orrery::models {

enum class NormKind : std::uint8_t { layer_norm, rms_norm };
enum class PositionKind : std::uint8_t { learned, rotary, alibi };  // alibi: a bias on the scores, no parameters
enum class MlpKind : std::uint8_t { gelu, swiglu, relu };           // gelu: the tanh form; swiglu: silu(gate) * up

/// Experts in place of the MLP of a block. expert_count 0: a dense model. Experts have no biases.
struct MixtureOfExperts {
    std::int64_t expert_count = 0;        // E, routed
    std::int64_t top_k = 0;               // experts of each token
    std::int64_t expert_ffn_hidden = 0;   // per matrix of one expert
    std::int64_t shared_ffn_hidden = 0;   // of all shared experts together; 0: none
    std::int64_t first_dense_layers = 0;  // blocks before the first with experts (first_k_dense_replace)
    std::int64_t layer_interval = 1;      // every so many blocks from there on, one has experts (moe_layer_freq)
    bool score_correction_bias = false;   // one value an expert, a buffer and no parameter (DeepSeek-V3's balancing)
    bool shared_expert_gate = false;      // a sigmoid of one linear output scales the shared experts (Qwen2-MoE)
    std::int64_t expert_groups = 0;       // equal groups of experts (n_group); 0: a token may choose from all
    std::int64_t top_k_groups = 0;        // groups that a token may choose from (topk_group)
    bool sigmoid_scores = false;          // scores are sigmoids of the router's outputs, not their softmax
    bool normalize_top_k = true;          // the chosen experts' scores are divided by their sum
    double routed_scale = 1.0;            // factor of the routed experts' output (routed_scaling_factor)
    bool operator==(const MixtureOfExperts&) const = default;
    /// The gradient of its outputs does not follow from the chosen experts' scores alone.
    [[nodiscard]] bool router_keeps_logits() const { return sigmoid_scores || !normalize_top_k; }
};

/// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434). kv_lora_rank 0: ordinary attention.
/// Parameters a layer: h*q_lora + q_lora*a*(nope+rope) + h*(kv_lora+rope) + kv_lora*a*(nope+v) + a*v*h, and the norms
/// of the two latents; with q_lora_rank 0 the query is one product h*a*(nope+rope). The model's head_dim is
/// nope+rope, that of queries and keys, and its kv_heads equals heads.
struct LatentAttention {
    std::int64_t q_lora_rank = 0;
    std::int64_t kv_lora_rank = 0;
    std::int64_t nope_head_dim = 0;
    std::int64_t rope_head_dim = 0;
    std::int64_t v_head_dim = 0;
    bool operator==(const LatentAttention&) const = default;
};

struct ModelSpec {
    std::string name;    // as the user knows it, e.g. "llama3-70b"
    std::string family;  // Hugging Face model_type: gpt2, llama, mixtral, bert, …
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
    /// Frequency scaling of rotary positions: "none", "linear", "llama3" (Llama 3.1) or "yarn" (arXiv 2309.00071).
    struct RopeScaling {
        std::string type = "none";
        double factor = 1.0;
        double low_frequency_factor = 1.0;        // llama3
        double high_frequency_factor = 1.0;       // llama3
        std::int64_t original_max_positions = 0;  // llama3 and yarn
        double beta_fast = 0.0;                   // yarn
        double beta_slow = 0.0;                   // yarn
        double mscale = 0.0;                      // yarn; 0: not given
        double mscale_all_dim = 0.0;              // yarn; 0: not given
        bool operator==(const RopeScaling&) const = default;
    } rope_scaling;
    std::int64_t sliding_window = 0;   // 0: full attention
    bool causal = true;                // false: every token attends to every other (bert)
    bool post_norm = false;            // norms after the residual sums instead of before the branches (bert)
    bool final_norm = true;            // a norm before the head
    bool embedding_norm = false;       // a norm after the embeddings (bloom, bert)
    bool parallel_residual = false;    // attention and MLP read the same hidden state; one sum for both
    bool shared_input_norm = false;    //   through one norm (falcon-7b); otherwise each has its own
    double rotary_fraction = 1.0;      // share of head_dim that is rotated (gpt_neox 0.25)
    std::int64_t token_types = 0;      // rows of a second embedding table (bert 2)
    std::int64_t position_offset = 0;  // rows of the position table before position 0 (opt 2)
    bool head_transform = false;       // before the head: a linear h x h with bias, activation and norm (bert)
    bool head_bias = false;            // a bias of one value a vocabulary entry
    bool pooler = false;               // a linear h x h with bias on the first token; counted, no FLOPs here
    MixtureOfExperts moe;
    LatentAttention latent;
    /// What the file that this was read from says and this does not hold: "KEY: VALUE", and what becomes of it.
    std::vector<std::string> left_out;
    bool operator==(const ModelSpec&) const = default;

    [[nodiscard]] std::int64_t q_width() const { return heads * head_dim; }
    [[nodiscard]] std::int64_t kv_width() const { return kv_heads * head_dim; }
    /// Width of the attention's output before its projection.
    [[nodiscard]] std::int64_t attention_out_width() const {
        return has_latent_attention() ? heads * latent.v_head_dim : q_width();
    }
    [[nodiscard]] bool has_experts() const { return moe.expert_count > 0; }
    [[nodiscard]] bool has_latent_attention() const { return latent.kv_lora_rank > 0; }
    /// Whether block `layer` (0..layers-1) has experts in place of its MLP.
    [[nodiscard]] bool is_expert_layer(std::int64_t layer) const {
        return has_experts() && layer >= moe.first_dense_layers &&
               (layer - moe.first_dense_layers) % moe.layer_interval == 0;
    }
    [[nodiscard]] std::int64_t mlp_in_width() const { return mlp == MlpKind::swiglu ? 2 * ffn_hidden : ffn_hidden; }
};

/// Parameters by what holds them, tied ones once, vocabulary unpadded.
struct ParameterCounts {
    std::int64_t embedding = 0;  // tables of tokens, positions and token types, and a head that is not tied to them
    std::int64_t experts = 0;    // routed ones
    std::int64_t dense = 0;      // all others
    std::int64_t active = 0;     // those that one token passes: top_k of the routed experts
    [[nodiscard]] std::int64_t all() const { return embedding + experts + dense; }
};
[[nodiscard]] ParameterCounts parameter_counts(const ModelSpec& model);
/// All parameters, tied ones once, vocabulary unpadded: what the published figures count.
[[nodiscard]] std::int64_t parameter_count(const ModelSpec& model);
/// The same with only those experts that one token passes: its top_k and the shared ones. Equal for a dense model.
[[nodiscard]] std::int64_t active_parameter_count(const ModelSpec& model);

/// How model FLOPs are counted when a rate or MFU is stated (conventions differ, so always print which).
enum class FlopsConvention : std::uint8_t {
    palm,            // 6N + 12*L*a*d*s per token, N active and without the input embedding when it is untied
    full_attention,  // every matmul, attention as the full square (Megatron 2022, nanotron, llm-foundry)
    causal_half,     // every matmul, attention core halved where it is causal (llm.c, Megatron-Core)
};
[[nodiscard]] std::string name_of(FlopsConvention convention);

/// Model FLOPs of forward + backward for one sequence of `sequence_length` tokens; no recomputation counted. Of experts
/// those that a token passes, and the router; the head for every token, also where only masked ones have a loss (bert).
[[nodiscard]] double model_flops_per_sequence(const ModelSpec& model, std::int64_t sequence_length,
                                              FlopsConvention convention);

/// Throws InputError naming `source` and the key when a dimension is out of range or dimensions contradict each other.
void check_model(const ModelSpec& model, const std::string& source);

/// Of a file that describes a language model beside towers for images or sound: all of it, which is refused, or the
/// language model alone.
enum class ModelParts : std::uint8_t { whole, text_only };
/// A model by zoo name ("llama3-70b"), by the path of a Hugging Face config.json or of a folder with one, or by the
/// path of an `orrery.model/1` file.
[[nodiscard]] ModelSpec load_model(const std::string& name_or_path, ModelParts parts = ModelParts::whole);
/// model_type bert (masked language model), bloom, deepseek_v2, deepseek_v3 (and kimi_k2), falcon, gpt2, gpt_neox,
/// llama, mistral, mixtral, opt, qwen2, qwen2_moe, qwen3 and qwen3_moe. Keys that do not matter here are passed over;
/// keys that would change the answer in a way that a ModelSpec cannot say (other attention, other activations, towers
/// beside the language model, layers that predict further tokens) are refused, as are families that are not known;
/// with text_only, towers and such layers are left out. The erf form of GELU is read as the tanh
/// form, which costs the same, where it is the family's usual one (bert, falcon, gpt_neox, opt). ModelSpec::left_out
/// receives the keys that nobody knows, and what is known and not modelled: the types that a checkpoint's weights are
/// stored in (quantization_config), and with text_only DeepSeek's num_nextn_predict_layers and the towers.
[[nodiscard]] ModelSpec read_hugging_face_config(const std::string& path, ModelParts parts = ModelParts::whole);
/// Names of the zoo, sorted.
[[nodiscard]] std::vector<std::string> zoo_names();

/// The model as an `orrery.model/1` JSON object, and back; `from_json_text` names `file` in its errors.
[[nodiscard]] std::string to_json_text(const ModelSpec& model);
[[nodiscard]] ModelSpec model_from_json_text(const std::string& text, const std::string& file);
/// The same from an object inside another document, whose pointers the errors then carry.
[[nodiscard]] ModelSpec model_from_json(const JsonReader& reader);

}  // namespace orrery::models
