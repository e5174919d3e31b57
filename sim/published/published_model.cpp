// The model of a published run: dimensions as published, the rest from its family.
#include <array>

#include "sim/published/translation.h"

namespace orrery::published {
namespace {

using models::MlpKind;
using models::ModelSpec;
using models::NormKind;
using models::PositionKind;

constexpr std::int64_t kGpt2Vocabulary = 50257;
constexpr std::int64_t kLlamaVocabulary = 32000;

/// GPT-2's layout, shared by Megatron-LM, BLOOM, MPT and GPT-3: LayerNorm, biases everywhere, learned positions for the
/// whole sequence, GELU, tied embedding and head. It reproduces exactly the numbers of parameters that llm-foundry
/// prints for MPT.
void lay_out_gpt(const PublishedRun& run, ModelSpec& model, Assumptions& assumptions) {
    model.family = "gpt2";
    model.norm = NormKind::layer_norm;
    model.position = run.model.alibi ? PositionKind::alibi : PositionKind::learned;
    model.mlp = MlpKind::gelu;
    model.qkv_bias = model.attention_output_bias = true;
    model.mlp_bias = !model.has_experts();
    model.tied_embeddings = run.model.tied_embeddings.value_or(true);
    model.embedding_norm = run.model.embedding_norm;
    if (run.model.parallel_attention_mlp) {  // GPT-NeoX
        model.parallel_residual = true;
        model.position = PositionKind::rotary;
        model.rotary_fraction = 0.25;
    }
    if (!run.model.tied_embeddings) {
        assumptions.add("/model/tied_embeddings", "embeddings", "tied", "GPT-2's layout; not stated");
    }
    assumptions.add("/model/position", "positions",
                    model.position == PositionKind::learned ? "learned, as many as the sequence has"
                    : model.position == PositionKind::alibi ? "ALiBi"
                                                            : "rotary, a quarter of each head",
                    "the model's family");
}

/// Nemotron-4: squared ReLU without a gate, half of each head rotated, no biases, LayerNorm.
void lay_out_nemotron(const PublishedRun& run, ModelSpec& model, Assumptions& assumptions) {
    model.family = "gpt_neox";  // the nearest family: LayerNorm and partly rotated heads
    model.norm = NormKind::layer_norm;
    model.position = PositionKind::rotary;
    model.rotary_fraction = 0.5;
    model.mlp = MlpKind::relu;
    model.tied_embeddings = run.model.tied_embeddings.value_or(false);
    assumptions.add("/model/mlp", "MLP", "squared ReLU, costed as ReLU", "Nemotron-4 (arXiv 2402.16819)");
    assumptions.add("/model/position", "positions", "rotary, half of each head", "Nemotron-4 (arXiv 2402.16819)");
}

void lay_out_llama(const PublishedRun& run, ModelSpec& model, Assumptions& assumptions) {
    model.family = run.model.latent ? "deepseek_v3" : model.has_experts() ? "mixtral" : "llama";
    model.norm = NormKind::rms_norm;
    model.position = PositionKind::rotary;
    model.mlp = MlpKind::swiglu;
    model.qkv_bias = contains(model.name, "Qwen2");
    model.qk_norm = contains(model.name, "Qwen3");
    model.tied_embeddings = run.model.tied_embeddings.value_or(false);
    if (!run.model.tied_embeddings) {
        assumptions.add("/model/tied_embeddings", "embeddings", "untied", "Llama's layout; not stated");
    }
}

std::int64_t vocabulary_of(const PublishedRun& run, Assumptions& assumptions) {
    // The recipe notes that the table's vocabulary serves a FLOP formula, while the data use another tokenizer.
    if (contains(run.notes, "megatron-gpt2-345m tokenizer")) {
        assumptions.add("/model/vocab", "vocab", kGpt2Vocabulary, "GPT-2's, as the notes say of the tokenizer");
        return kGpt2Vocabulary;
    }
    if (run.model.vocab) return *run.model.vocab;
    // github.com/sail-sg/zero-bubble-pipeline-parallelism, examples/pretrain_zero_bubble.sh of 2023 uses a
    // SentencePiece model of unstated size. With 32,000 entries in a tied table the models have the 1.5 and 28.3
    // billion parameters of their names; with GPT-2's 50,257 the larger would have 28.4 billion, with two tables 28.5.
    if (contains(run.source, "Zero Bubble") && contains(run.framework, "Megatron-LM fork")) {
        assumptions.add("/model/vocab", "vocab", kLlamaVocabulary,
                        "a SentencePiece model, by the authors' training script and the sizes in the models' names");
        return kLlamaVocabulary;
    }
    const bool gated = run.model.gated_mlp.value_or(false);
    const std::int64_t vocab = gated ? kLlamaVocabulary : kGpt2Vocabulary;
    assumptions.add("/model/vocab", "vocab", vocab, gated ? "Llama's; not stated" : "GPT-2's; not stated");
    return vocab;
}

/// hidden / heads, except for families with a head width of their own.
std::int64_t head_dim_of(const PublishedRun& run, const ModelSpec& model, Assumptions& assumptions) {
    struct Known {
        std::string_view name;
        std::int64_t head_dim;
    };
    static constexpr std::array<Known, 3> kKnown{{{"Qwen3", 128}, {"GPT OSS", 64}, {"gpt-oss", 64}}};
    for (const Known& known : kKnown) {
        if (!contains(run.model.name, known.name)) continue;
        assumptions.add("/model/head_dim", "head_dim", known.head_dim, std::string(known.name) + "'s; not stated");
        return known.head_dim;
    }
    if (model.hidden % model.heads != 0) {
        throw NotExpressible("head_dim is not stated and hidden " + std::to_string(model.hidden) +
                             " is not a multiple of heads " + std::to_string(model.heads));
    }
    return model.hidden / model.heads;
}

void add_experts(const PublishedRun::Experts& published, ModelSpec& model) {
    model.moe.expert_count = published.count;
    model.moe.top_k = published.top_k;
    model.moe.expert_ffn_hidden = published.ffn_hidden;
    model.moe.shared_ffn_hidden = published.shared_ffn_hidden;
    model.moe.first_dense_layers = published.dense_layers;
}

}  // namespace

std::int64_t required(const std::optional<std::int64_t>& value, const std::string& what) {
    if (!value) throw NotExpressible(what + " is not stated");
    return *value;
}

ModelSpec model_of(const PublishedRun& run, Assumptions& assumptions) {
    const PublishedRun::Model& published = run.model;
    ModelSpec model;
    model.name = published.name;
    model.layers = required(published.layers, "model.layers");
    model.hidden = required(published.hidden, "model.hidden");
    model.heads = required(published.heads, "model.heads");
    model.kv_heads = required(published.kv_heads, "model.kv_heads");
    model.ffn_hidden = required(published.ffn_hidden, "model.ffn_hidden");
    model.max_positions = required(published.sequence_length, "model.seq_len");
    if (!published.gated_mlp) throw NotExpressible("model.gated_mlp is not stated");
    if (published.experts) add_experts(*published.experts, model);
    model.vocab = vocabulary_of(run, assumptions);
    if (published.latent) {
        const PublishedRun::LatentAttention& latent = *published.latent;
        model.latent = {.q_lora_rank = latent.q_lora,
                        .kv_lora_rank = latent.kv_lora,
                        .nope_head_dim = latent.qk_head,
                        .rope_head_dim = latent.rope_head,
                        .v_head_dim = latent.v_head};
        model.head_dim = latent.qk_head + latent.rope_head;
        model.kv_heads = model.heads;
    } else {
        model.head_dim = head_dim_of(run, model, assumptions);
    }
    if (contains(published.name, "nemotron") || contains(published.name, "Nemotron")) {
        lay_out_nemotron(run, model, assumptions);
    } else if (*published.gated_mlp) {
        lay_out_llama(run, model, assumptions);
    } else {
        lay_out_gpt(run, model, assumptions);
    }
    return model;
}

}  // namespace orrery::published
