// Bytes that layers save from forward to backward, against published and derived closed forms.
#include <gtest/gtest.h>

#include "tests/unit/models/layer_samples.h"

namespace orrery::models {
namespace {

using samples::Cut;
using samples::saved_bytes;

constexpr std::int64_t kSequenceLength = 1024, kMicroBatch = 2;
constexpr std::int64_t kTokens = kSequenceLength * kMicroBatch;

std::int64_t saved_by(const ModelSpec& model, LayerKind kind, const Implementation& implementation, const Cut& cut = {},
                      Fp8Scaling fp8 = Fp8Scaling::none, double dropout = 0) {
    LayerContext context = samples::context(model, implementation, kSequenceLength, kMicroBatch, cut);
    context.fp8 = fp8;
    context.dropout = dropout;
    return saved_bytes(build_layer(model, kind, context));
}

// sbh (12 + 4k/a) + 6sbf + 4abs for the log-sum-exp + 8sb for two RMS statistics.
TEST(LayerMemory, AModernBlockSavesTheDerivedForm) {
    const Implementation fused = load_implementation("orrery");
    for (const char* name : {"llama3-8b", "llama2-13b", "llama3-70b", "mistral-7b"}) {
        const ModelSpec m = load_model(name);
        const std::int64_t form = kTokens * (12 * m.hidden + 4 * m.kv_width() + 6 * m.ffn_hidden + 4 * m.heads + 8);
        EXPECT_EQ(saved_by(m, LayerKind::block, fused), form) << name;
        for (const std::int64_t t : {2, 4, 8}) {
            EXPECT_EQ(saved_by(m, LayerKind::block, fused, {.tp = t, .sequence_parallel = true}), form / t) << name;
        }
        for (const ContextParallel kind : {ContextParallel::ring, ContextParallel::all_gather}) {
            EXPECT_EQ(saved_by(m, LayerKind::block, fused, {.cp = 4, .kind = kind}), form / 4) << name;
        }
        // Ulysses saves o twice: for this rank's heads for attention, for its positions for the output product.
        EXPECT_EQ(saved_by(m, LayerKind::block, fused, {.cp = 4, .kind = ContextParallel::ulysses}),
                  (form + 2 * kTokens * m.q_width()) / 4)
            << name;
    }
}

// Llama-3-8B: 34 sbh fused, 41 with an unfused gate, 56 in eager passes (norms in fp32, key/value heads repeated).
TEST(LayerMemory, EagerBlocksSaveTheMeasuredBytes) {
    const ModelSpec m = load_model("llama3-8b");
    Implementation implementation = load_implementation("orrery");
    const std::int64_t statistics = kTokens * (4 * m.heads + 8);  // log-sum-exp and norm statistics
    const auto units = [&] {
        return static_cast<double>(saved_by(m, LayerKind::block, implementation) - statistics) /
               static_cast<double>(kTokens * m.hidden);
    };
    EXPECT_DOUBLE_EQ(units(), 34);
    implementation.kernels.fused_activation = false;
    EXPECT_DOUBLE_EQ(units(), 41);
    implementation.kernels.fused_norm = false;
    implementation.kernels.repeats_kv_heads = true;
    EXPECT_DOUBLE_EQ(units(), 56);
}

// arXiv 2205.05198: sbh (34 + 5as/h); tensor parallel sbh (10 + 24/t + 5as/(ht)); with sequence parallelism all of it
// over t. In addition each LayerNorm saves two numbers a token.
TEST(LayerMemory, UnfusedAttentionSavesThePublishedForm) {
    const ModelSpec m = load_model("megatron-22b");
    const Implementation megatron = load_implementation("megatron-lm-2022");
    const std::int64_t square = 5 * m.heads * kSequenceLength * kTokens;
    const std::int64_t h = m.hidden;
    const auto saved = [&](const Cut& cut) {
        const std::int64_t stats = 16 * kTokens / (cut.sequence_parallel ? cut.tp : 1);
        return saved_by(m, LayerKind::block, megatron, cut, Fp8Scaling::none, 0.1) - stats;
    };
    EXPECT_EQ(saved({}), kTokens * 34 * h + square);
    EXPECT_EQ(saved({.tp = 8}), kTokens * (10 * h + 24 * h / 8) + square / 8);
    EXPECT_EQ(saved({.tp = 8, .sequence_parallel = true}), (kTokens * 34 * h + square) / 8);
}

// Latent attention saves both latents before and after their norms, q, k and v at full width, and o.
TEST(LayerMemory, LatentAttentionSavesItsLatents) {
    const ModelSpec m = load_model("deepseek-v3");
    const LatentAttention& l = m.latent;
    const std::int64_t qk = l.nope_head_dim + l.rope_head_dim;
    const std::int64_t wide = l.kv_lora_rank + l.rope_head_dim;
    const std::int64_t attention =
        2 * (2 * l.q_lora_rank + 2 * wide + m.heads * (2 * qk + 2 * l.v_head_dim)) + 4 * m.heads + 2 * 4;
    const std::int64_t block = 2 * 4 * m.hidden + 2 * 4 + 6 * m.ffn_hidden;  // two inputs, two norms
    EXPECT_EQ(saved_by(m, LayerKind::block, load_implementation("orrery")), kTokens * (attention + block));
}

// Mixtral: instead of 6sbf, an expert, a row and a probability of 4 bytes each for each of the top k, the permuted
// tokens and the results (4 topk sbh), and topk 6sb f.
TEST(LayerMemory, ExpertsSavePermutedTokens) {
    const ModelSpec m = load_model("mixtral-8x7b");
    const std::int64_t k = m.moe.top_k, f = m.moe.expert_ffn_hidden;
    const std::int64_t attention = 12 * m.hidden + 4 * m.kv_width() + 4 * m.heads + 8;
    const std::int64_t experts = k * (12 + 4 * m.hidden + 6 * f), counts = 8 * m.moe.expert_count;
    const Implementation fused = load_implementation("orrery");
    EXPECT_EQ(saved_by(m, LayerKind::expert_block, fused), kTokens * (attention + experts) + counts);
    EXPECT_EQ(saved_by(m, LayerKind::expert_block, fused, {.ep = 8}), kTokens * (attention + experts) + 2 * counts);
    EXPECT_EQ(saved_by(m, LayerKind::expert_block, fused, {.tp = 4, .ep = 8, .sequence_parallel = true}),
              kTokens / 4 * (attention + experts) + 2 * counts);
    // Memory is laid out for the upper bound, so every slot after the dispatch grows; times use the expected load.
    LayerContext context = samples::context(m, fused, kSequenceLength, kMicroBatch, {.ep = 8});
    context.expert_load = {.imbalance = 1.25, .largest = 2.0};
    const Layer layer = build_layer(m, LayerKind::expert_block, context);
    EXPECT_EQ(saved_bytes(layer), kTokens * (attention + experts + k * (2 * m.hidden + 6 * f)) + 2 * counts);
    for (const SlotDecl& slot : layer.slots) {
        if (slot.name != "experts.in") continue;
        EXPECT_EQ(slot.shape.front(), kTokens * k * 5 / 4);
        EXPECT_EQ(slot.most_rows, kTokens * k * 2);
    }
}

// As in TransformerEngine, products save the transposed fp8 copy of their input; o is saved for attention's backward.
TEST(LayerMemory, Fp8ProductsSaveOneByteForEachInput) {
    const ModelSpec m = load_model("llama3-8b");
    const Implementation fused = load_implementation("orrery");
    const std::int64_t rest = 4 * m.heads + 8;
    for (const Fp8Scaling scaling : {Fp8Scaling::delayed, Fp8Scaling::tensorwise}) {
        EXPECT_EQ(saved_by(m, LayerKind::block, fused, {}, scaling),
                  kTokens * (2 * 2 * m.hidden                            // the block's input and the first residual sum
                             + 2 * m.hidden                              // both norms' outputs, one byte
                             + 2 * (2 * m.q_width() + 2 * m.kv_width())  // q, k, v and o
                             + m.q_width()                               // the output product's copy of o
                             + 4 * m.ffn_hidden + m.ffn_hidden + rest));
    }
    // mx: one byte of scale for 32 elements of each copy.
    EXPECT_EQ(saved_by(m, LayerKind::block, fused, {}, Fp8Scaling::mx) -
                  saved_by(m, LayerKind::block, fused, {}, Fp8Scaling::delayed),
              kTokens * (3 * m.hidden + m.ffn_hidden) / 32);
    // fp4: half a byte an element, and one byte of scale for 16 or 32 elements.
    for (const auto& [scaling, block] : {std::pair{Fp8Scaling::nvfp4, 16}, {Fp8Scaling::mxfp4, 32}}) {
        const std::int64_t elements = kTokens * (3 * m.hidden + m.ffn_hidden);
        EXPECT_EQ(saved_by(m, LayerKind::block, fused, {}, Fp8Scaling::delayed) -
                      saved_by(m, LayerKind::block, fused, {}, scaling),
                  elements / 2 - elements / block);
    }
}

TEST(LayerMemory, Fp4ProductsSaveHalfAByteAndScales) {
    const ModelSpec m = load_model("llama3-8b");
    LayerContext context = samples::context(m, load_implementation("orrery"), kSequenceLength, kMicroBatch);
    context.fp8 = Fp8Scaling::nvfp4;
    const Layer layer = build_layer(m, LayerKind::block, context);
    const std::int64_t matrices = m.hidden * (2 * m.q_width() + 2 * m.kv_width() + 3 * m.ffn_hidden);
    std::int64_t bytes = 0;
    for (const SlotDecl& slot : layer.slots) {
        if (slot.role == SlotRole::weight_copy) bytes += slot.bytes();
    }
    EXPECT_EQ(bytes, 2 * (matrices / 2 + matrices / 16));
    for (const Step& step : layer.forward) {
        const auto* op = std::get_if<Operator>(&step);
        EXPECT_TRUE(op == nullptr || !op->is_matmul() || op->math == DType::fp4);
    }
}

TEST(LayerMemory, Fp8WeightsAreCopiedTwiceOnceAStep) {
    const ModelSpec m = load_model("llama3-8b");
    LayerContext context = samples::context(m, load_implementation("orrery"), kSequenceLength, kMicroBatch);
    const std::int64_t matrices = m.hidden * (2 * m.q_width() + 2 * m.kv_width() + 3 * m.ffn_hidden);
    for (const Fp8Scaling scaling : {Fp8Scaling::delayed, Fp8Scaling::tensorwise, Fp8Scaling::mx}) {
        context.fp8 = scaling;
        const Layer layer = build_layer(m, LayerKind::block, context);
        std::int64_t bytes = 0;
        for (const SlotDecl& slot : layer.slots) {
            if (slot.role == SlotRole::weight_copy) bytes += slot.bytes();
        }
        EXPECT_EQ(bytes, scaling == Fp8Scaling::mx ? 2 * matrices / 32 * 33 : 2 * matrices);
        EXPECT_EQ(layer.prepare.size(), scaling == Fp8Scaling::tensorwise ? 8U : 4U);
        for (const Step& step : layer.forward) {
            const auto* op = std::get_if<Operator>(&step);
            if (op == nullptr) continue;
            EXPECT_TRUE(!op->is_matmul() || op->math == DType::fp8);
            EXPECT_TRUE(!op->is_attention() || op->math == DType::bf16);
        }
    }
}

// The head: 4sbV of fp32 logits, which are overwritten by their gradient; unfused 6sbV with the bf16 logits.
TEST(LayerMemory, TheHeadSavesLogits) {
    const ModelSpec m = load_model("llama3-8b");
    Implementation implementation = load_implementation("orrery");
    const std::int64_t rest = 2 * 2 * m.hidden + 4 + 4 + 4;  // the norm's input, output and statistic; targets, lse
    EXPECT_EQ(saved_by(m, LayerKind::head, implementation), kTokens * (4 * m.vocab + rest));
    implementation.kernels.fused_cross_entropy = false;
    EXPECT_EQ(saved_by(m, LayerKind::head, implementation), kTokens * (6 * m.vocab + rest));
}

/// With gathered logits each rank has the whole vocabulary: 2 bytes as gathered, 4 in the loss.
TEST(LayerMemory, GatheredLogitsAreNotSharded) {
    ModelSpec m = load_model("llama3-8b");
    Implementation implementation = load_implementation("orrery");
    implementation.kernels.fused_cross_entropy = false;
    const auto logits = [&](const Implementation& chosen, std::int64_t tp) {
        const Layer head =
            build_layer(m, LayerKind::head, samples::context(m, chosen, kSequenceLength, kMicroBatch, {.tp = tp}));
        std::int64_t bytes = 0;
        for (const SlotDecl& slot : head.slots) {
            if (slot.role == SlotRole::saved && slot.name.starts_with("logits")) bytes += slot.bytes();
        }
        return bytes;
    };
    EXPECT_EQ(logits(implementation, 4), kTokens * 6 * m.vocab / 4);
    implementation.kernels.gathers_logits = true;
    EXPECT_EQ(logits(implementation, 4), kTokens * 6 * m.vocab);
    EXPECT_EQ(logits(implementation, 1), kTokens * 6 * m.vocab);
}

}  // namespace
}  // namespace orrery::models
