// Shared by the tests of layers: contexts, sums over steps, and small models of every family whose sizes are divisible
// by all tested degrees.
#pragma once

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "models/implementation.h"
#include "models/layer.h"

namespace orrery::models::samples {

struct Cut {
    std::int64_t tp = 1, cp = 1, ep = 1, etp = 1;
    bool sequence_parallel = false;
    ContextParallel kind = ContextParallel::ring;
};

inline LayerContext context(const ModelSpec& model, const Implementation& implementation, std::int64_t sequence,
                            std::int64_t micro_batch, const Cut& cut = {}) {
    LayerContext context{.sequence = sequence,
                         .micro_batch = micro_batch,
                         .tp_degree = cut.tp,
                         .sequence_parallel = cut.sequence_parallel,
                         .cp_degree = cut.cp,
                         .context_parallel = cut.kind,
                         .ep_degree = cut.ep,
                         .etp_degree = cut.etp};
    context.parameter_dtype = context.activation_dtype = context.compute_dtype = DType::bf16;
    context.implementation = implementation;
    context.tied_to_embedding = model.tied_embeddings;
    context.padded_vocab = padded_vocabulary(model, 1, cut.tp);
    return context;
}

/// Small models of every family that a ModelSpec can express.
inline std::vector<ModelSpec> families() {
    ModelSpec llama = load_model("tiny-llama");
    llama.hidden = 64;
    llama.heads = 8;
    llama.kv_heads = 4;
    llama.head_dim = 8;
    llama.ffn_hidden = 160;
    llama.max_positions = 1024;
    std::vector<ModelSpec> all{llama};
    const auto add = [&](const char* name, auto change) {
        ModelSpec model = llama;
        model.name = name;
        change(model);
        all.push_back(model);
    };
    const auto gpt = [](ModelSpec& m) {
        m.kv_heads = m.heads;
        m.norm = NormKind::layer_norm;
        m.position = PositionKind::learned;
        m.mlp = MlpKind::gelu;
        m.qkv_bias = m.attention_output_bias = m.mlp_bias = m.tied_embeddings = true;
    };
    add("gpt", gpt);
    add("qwen3", [](ModelSpec& m) { m.qk_norm = true; });
    add("one-head", [](ModelSpec& m) { m.kv_heads = 1; });
    add("opt", [&](ModelSpec& m) {
        gpt(m);
        m.mlp = MlpKind::relu;
        m.position_offset = 2;
    });
    add("bloom", [&](ModelSpec& m) {
        gpt(m);
        m.position = PositionKind::alibi;
        m.embedding_norm = true;
    });
    add("neox", [&](ModelSpec& m) {
        gpt(m);
        m.position = PositionKind::rotary;
        m.rotary_fraction = 0.25;
        m.parallel_residual = true;
        m.tied_embeddings = false;
    });
    add("falcon", [&](ModelSpec& m) {
        gpt(m);
        m.position = PositionKind::rotary;
        m.kv_heads = 1;
        m.parallel_residual = m.shared_input_norm = true;
        m.qkv_bias = m.attention_output_bias = m.mlp_bias = false;
    });
    add("bert", [&](ModelSpec& m) {
        gpt(m);
        m.causal = m.final_norm = false;
        m.post_norm = m.embedding_norm = m.head_transform = m.head_bias = m.pooler = true;
        m.token_types = 2;
    });
    add("window", [](ModelSpec& m) { m.sliding_window = 24; });
    const auto moe = [](ModelSpec& m) {
        m.moe.expert_count = 8;
        m.moe.top_k = 2;
        m.moe.expert_ffn_hidden = 48;
    };
    add("mixtral", moe);
    add("qwen2-moe", [&](ModelSpec& m) {
        moe(m);
        m.moe.shared_ffn_hidden = 96;
        m.moe.shared_expert_gate = true;
    });
    const auto latent = [](ModelSpec& m) {
        m.kv_heads = m.heads;
        m.latent = {.q_lora_rank = 24, .kv_lora_rank = 16, .nope_head_dim = 8, .rope_head_dim = 4, .v_head_dim = 6};
        m.head_dim = 12;
    };
    add("deepseek", [&](ModelSpec& m) {
        moe(m);
        latent(m);
        m.moe.shared_ffn_hidden = 48;
        m.moe.first_dense_layers = 1;
        m.moe.sigmoid_scores = m.moe.score_correction_bias = true;
    });
    add("deepseek-lite", [&](ModelSpec& m) {
        latent(m);
        m.latent.q_lora_rank = 0;
    });
    return all;
}

inline std::vector<LayerKind> kinds_of(const ModelSpec& model) {
    std::vector<LayerKind> kinds{LayerKind::embedding, LayerKind::head};
    bool dense = false, expert = false;
    for (std::int64_t i = 0; i < model.layers; ++i) (model.is_expert_layer(i) ? expert : dense) = true;
    if (dense) kinds.push_back(LayerKind::block);
    if (expert) kinds.push_back(LayerKind::expert_block);
    return kinds;
}
/// Number of layers of a kind.
inline std::int64_t count_of(const ModelSpec& model, LayerKind kind) {
    if (kind == LayerKind::embedding || kind == LayerKind::head) return 1;
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < model.layers; ++i) {
        count += model.is_expert_layer(i) == (kind == LayerKind::expert_block);
    }
    return count;
}

struct Flops {
    double products = 0, attention = 0;
};
inline Flops flops_of(const std::vector<Step>& steps) {
    Flops sum;
    for (const Step& step : steps) {
        const auto* op = std::get_if<Operator>(&step);
        if (op == nullptr) continue;
        if (op->is_matmul() || op->is_expert_matmul()) sum.products += op->flops;
        if (op->is_attention() || op->is_attention_product()) sum.attention += op->flops;
    }
    return sum;
}

/// Bytes that a rank sends over an axis, with the factors of ring algorithms.
inline double wire_bytes(const std::vector<Step>& steps, Boundary::Axis axis, std::int64_t ranks) {
    double sum = 0;
    const double share = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
    for (const Step& step : steps) {
        const auto* boundary = std::get_if<Boundary>(&step);
        if (boundary == nullptr || boundary->axis != axis) continue;
        const double bytes = static_cast<double>(boundary->elements * size_of(boundary->dtype));
        switch (boundary->kind) {
            case Boundary::Kind::reduce:
            case Boundary::Kind::reduce_max:
                sum += 2 * share * bytes;
                break;
            case Boundary::Kind::gather:
            case Boundary::Kind::reduce_scatter:
            case Boundary::Kind::all_to_all:
                sum += share * bytes;
                break;
            case Boundary::Kind::exchange:
            case Boundary::Kind::broadcast:
            case Boundary::Kind::reduce_to_root:
                sum += bytes;
                break;
        }
    }
    return sum;
}

/// Bytes that a layer saves from forward to backward, its input included.
inline std::int64_t saved_bytes(const Layer& layer) {
    std::int64_t sum = 0;
    for (const SlotDecl& slot : layer.slots) {
        if (slot.role == SlotRole::saved || slot.role == SlotRole::hidden_in) sum += slot.bytes();
    }
    return sum;
}

}  // namespace orrery::models::samples
