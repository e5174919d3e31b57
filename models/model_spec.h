// The architecture of the trained model: a transformer decoder or a bidirectional encoder (bert).
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
    std::int64_t top_k = 0;               // experts that each token chooses
    std::int64_t expert_ffn_hidden = 0;   // per matrix of one expert
    std::int64_t shared_ffn_hidden = 0;   // of all shared experts together; 0: none
    std::int64_t first_dense_layers = 0;  // blocks before the first with experts (first_k_dense_replace)
    std::int64_t layer_interval = 1;      // from there on, every layer_interval-th block has experts (moe_layer_freq)
    bool score_correction_bias = false;   // one value an expert, a buffer and not a parameter (DeepSeek-V3's balancing)
    bool shared_expert_gate = false;      // a sigmoid of one linear output scales the shared experts (Qwen2-MoE)
    std::int64_t expert_groups = 0;       // equal groups of experts (n_group); 0: a token may choose from all experts
    std::int64_t top_k_groups = 0;        // groups that a token may choose from (topk_group)
    bool sigmoid_scores = false;          // scores are the sigmoid of the router's outputs instead of their softmax
    bool normalize_top_k = true;          // the chosen experts' scores are divided by their sum
    double routed_scale = 1.0;            // factor of the routed experts' output (routed_scaling_factor)
    bool operator==(const MixtureOfExperts&) const = default;
    /// The gradient of the router's outputs cannot be computed from the chosen experts' scores alone.
    [[nodiscard]] bool router_keeps_logits() const { return sigmoid_scores || !normalize_top_k; }
};

/// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434). kv_lora_rank 0: ordinary attention.
/// Parameters a layer: h*q_lora + q_lora*a*(nope+rope) + h*(kv_lora+rope) + kv_lora*a*(nope+v) + a*v*h, and the norms
/// of the two latents. With q_lora_rank 0 the query is one product h*a*(nope+rope). The model's head_dim is nope+rope,
/// as for queries and keys, and its kv_heads equals heads.
struct LatentAttention {
    std::int64_t q_lora_rank = 0;
    std::int64_t kv_lora_rank = 0;
    std::int64_t nope_head_dim = 0;
    std::int64_t rope_head_dim = 0;
    std::int64_t v_head_dim = 0;
    bool operator==(const LatentAttention&) const = default;
};

struct ModelSpec {
    std::string name;    // e.g. "llama3-70b"
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
    bool parallel_residual = false;    // attention and MLP read the same hidden state and share one residual sum
    bool shared_input_norm = false;    //   one norm for both (falcon-7b); otherwise each has its own
    double rotary_fraction = 1.0;      // share of head_dim that is rotated (gpt_neox 0.25)
    std::int64_t token_types = 0;      // rows of a second embedding table (bert 2)
    std::int64_t position_offset = 0;  // rows of the position table before position 0 (opt 2)
    bool head_transform = false;       // before the head: a linear h x h with bias, activation and norm (bert)
    bool head_bias = false;            // one value for each vocabulary entry
    bool pooler = false;  // a linear h x h with bias on the first token; counted as parameters, not as FLOPs
    MixtureOfExperts moe;
    LatentAttention latent;
    /// Keys of the source file that this struct does not represent: "KEY: VALUE (REASON)".
    std::vector<std::string> left_out;
    /// D, the depths of multi-token prediction (num_nextn_predict_layers; arXiv 2412.19437 section 2.2) that are left
    /// out: no count of parameters, FLOPs or memory has them but prediction_layers_left_out.
    std::int64_t left_out_prediction_layers = 0;
    bool operator==(const ModelSpec&) const = default;

    [[nodiscard]] std::int64_t q_width() const { return heads * head_dim; }
    [[nodiscard]] std::int64_t kv_width() const { return kv_heads * head_dim; }
    /// Width of the attention's output before its projection.
    [[nodiscard]] std::int64_t attention_out_width() const {
        return has_latent_attention() ? heads * latent.v_head_dim : q_width();
    }
    /// Rotated elements of a head, where positions are rotary.
    [[nodiscard]] std::int64_t rotary_width() const;
    [[nodiscard]] bool has_experts() const { return moe.expert_count > 0; }
    [[nodiscard]] bool has_latent_attention() const { return latent.kv_lora_rank > 0; }
    /// Whether block `layer` (0..layers-1) has experts in place of its MLP.
    [[nodiscard]] bool is_expert_layer(std::int64_t layer) const {
        return has_experts() && layer >= moe.first_dense_layers &&
               (layer - moe.first_dense_layers) % moe.layer_interval == 0;
    }
    [[nodiscard]] std::int64_t mlp_in_width() const { return mlp == MlpKind::swiglu ? 2 * ffn_hidden : ffn_hidden; }
};

/// Parameters by component, with tied ones counted once and the vocabulary unpadded.
struct ParameterCounts {
    std::int64_t embedding = 0;  // tables of tokens, positions and token types, and an untied head
    std::int64_t experts = 0;    // routed experts
    std::int64_t dense = 0;      // all others
    std::int64_t active = 0;     // all parameters that one token uses: with top_k of the routed experts
    [[nodiscard]] std::int64_t all() const { return embedding + experts + dense; }
};
[[nodiscard]] ParameterCounts parameter_counts(const ModelSpec& model);
/// All parameters, as in published figures: tied ones counted once, vocabulary unpadded.
[[nodiscard]] std::int64_t parameter_count(const ModelSpec& model);
/// The same with only top_k of the routed experts, as used by one token. Equals parameter_count for a dense model.
[[nodiscard]] std::int64_t active_parameter_count(const ModelSpec& model);

/// How model FLOPs are counted for a rate or MFU. Conventions differ, so always print which one is used.
enum class FlopsConvention : std::uint8_t {
    palm,            // 6N + 12*L*a*d*s per token, N active and without the input embedding when it is untied
    full_attention,  // every matmul, attention as the full square (Megatron 2022, nanotron, llm-foundry)
    causal_half,     // every matmul, attention core halved where it is causal (llm.c, Megatron-Core)
};
[[nodiscard]] std::string name_of(FlopsConvention convention);

/// Model FLOPs of forward + backward for one sequence of `sequence_length` tokens, without recomputation. Counts the
/// router, top_k of the routed experts, and the head for every token, even if only masked tokens have a loss (bert).
[[nodiscard]] double model_flops_per_sequence(const ModelSpec& model, std::int64_t sequence_length,
                                              FlopsConvention convention);

/// What one training step would have in addition with the layers of ModelSpec::left_out_prediction_layers.
struct LeftOutLayers {
    std::int64_t parameters = 0;  // of their own: embedding and head are shared with the model
    double flops = 0;             // forward and backward of one sequence, as in model_flops_per_sequence
};
/// Multi-token prediction after DeepSeek-V3 (arXiv 2412.19437 section 2.2): each depth has a norm of the hidden state
/// and one of the next token's embedding, a projection 2h x h of both, a block like the model's last one, and a norm
/// before the head, which is computed once more. Each is counted for every token of the sequence.
[[nodiscard]] LeftOutLayers prediction_layers_left_out(const ModelSpec& model, std::int64_t sequence_length,
                                                       FlopsConvention convention);

/// Throws InputError naming `source` and the key if a dimension is out of range or dimensions contradict each other.
void check_model(const ModelSpec& model, const std::string& source);

/// How to read a file with a language model and image or audio towers: `whole` refuses it, `text_only` takes the
/// language model alone.
enum class ModelParts : std::uint8_t { whole, text_only };
/// A model by zoo name ("llama3-70b"), by the path of a Hugging Face config.json or of a folder with one, or by the
/// path of an `orrery.model/1` file.
[[nodiscard]] ModelSpec load_model(const std::string& name_or_path, ModelParts parts = ModelParts::whole);
/// Reads model_type bert (masked language model), bloom, deepseek_v2, deepseek_v3 (and kimi_k2), falcon, gpt2,
/// gpt_neox, llama, mistral, mixtral, opt, qwen2, qwen2_moe, qwen3 and qwen3_moe.
///
/// Irrelevant keys are ignored. Unknown families are refused, and so are keys that would change the result in a way
/// that a ModelSpec cannot express: other attention, other activations, image or audio towers, layers that predict
/// further tokens. With text_only, towers and such layers are left out. The erf form of GELU is read as the tanh form,
/// which costs the same, in families that normally use it (bert, falcon, gpt_neox, opt).
///
/// ModelSpec::left_out receives unknown keys and known ones that are not modelled: the storage types of a checkpoint's
/// weights (quantization_config) and, with text_only, DeepSeek's num_nextn_predict_layers and the towers.
[[nodiscard]] ModelSpec read_hugging_face_config(const std::string& path, ModelParts parts = ModelParts::whole);
/// Names of the zoo, sorted.
[[nodiscard]] std::vector<std::string> zoo_names();

/// The model as an `orrery.model/1` JSON object, and back; model_from_json_text names `file` in its errors.
[[nodiscard]] std::string to_json_text(const ModelSpec& model);
[[nodiscard]] ModelSpec model_from_json_text(const std::string& text, const std::string& file);
/// The same from an object inside another document; errors have that document's JSON pointers.
[[nodiscard]] ModelSpec model_from_json(const JsonReader& reader);

}  // namespace orrery::models
