// FLOPs of the operators that layers consist of, against the closed forms of REFERENCE section 6.
#include <gtest/gtest.h>

#include <string>

#include "models/implementation.h"
#include "models/layer.h"

namespace orrery::models {
namespace {

struct Flops {
    double products = 0, attention = 0;
};

Flops flops_of(const std::vector<Step>& steps) {
    Flops sum;
    for (const Step& step : steps) {
        const auto* op = std::get_if<Operator>(&step);
        if (op == nullptr) continue;
        if (op->is_matmul()) sum.products += op->flops;
        if (op->is_attention()) sum.attention += op->flops;
    }
    return sum;
}

LayerContext context(const ModelSpec& model, const char* implementation, std::int64_t sequence, std::int64_t tp = 1) {
    LayerContext context{.sequence = sequence, .micro_batch = 3, .tp_degree = tp};
    context.implementation = load_implementation(implementation);
    context.padded_vocab = padded_vocabulary(model, context.implementation.vocab_multiple, tp);
    return context;
}

// Per token: 2 (h a d + 2 h k d + a d h) for the projections, 6 h f (SwiGLU) or 4 h f (GELU) for the MLP; 4 s a d for
// the attention core.
TEST(LayerFlops, ABlockCostsTheClosedForm) {
    for (const char* name : {"gpt2", "llama3-8b", "qwen3-8b", "mistral-7b", "megatron-22b"}) {
        const ModelSpec m = load_model(name);
        constexpr std::int64_t kSequence = 512;
        const Layer layer = build_layer(m, LayerKind::block, context(m, "megatron-lm-2022", kSequence));
        const double tokens = 3.0 * kSequence;
        const auto h = static_cast<double>(m.hidden);
        const auto q = static_cast<double>(m.q_width());
        const auto kv = static_cast<double>(m.kv_width());
        const double mlp = (m.mlp == MlpKind::swiglu ? 6 : 4) * h * static_cast<double>(m.ffn_hidden);
        const Flops forward = flops_of(layer.forward), backward = flops_of(layer.backward);
        EXPECT_DOUBLE_EQ(forward.products, tokens * (2 * (2 * h * q + 2 * h * kv) + mlp)) << name;
        EXPECT_DOUBLE_EQ(forward.attention, tokens * 4 * kSequence * q) << name;
        EXPECT_DOUBLE_EQ(backward.products, 2 * forward.products) << name;
        EXPECT_DOUBLE_EQ(backward.attention, 2 * forward.attention) << name;
    }
}

// What is skipped above the diagonal: (s + 1) / 2s of the square is left. The fused backward pass computes the scores
// again: five products instead of four.
TEST(LayerFlops, CausalAndFusedAttentionAreCountedAsComputed) {
    const ModelSpec m = load_model("llama3-8b");
    constexpr std::int64_t kSequence = 256;
    const Layer whole = build_layer(m, LayerKind::block, context(m, "megatron-lm-2022", kSequence));
    const Layer skipped = build_layer(m, LayerKind::block, context(m, "orrery", kSequence));
    EXPECT_DOUBLE_EQ(flops_of(skipped.forward).attention,
                     flops_of(whole.forward).attention * (kSequence + 1) / (2.0 * kSequence));
    EXPECT_DOUBLE_EQ(flops_of(skipped.backward).attention, flops_of(skipped.forward).attention * 2.5);
    EXPECT_DOUBLE_EQ(flops_of(skipped.forward).products, flops_of(whole.forward).products);
}

TEST(LayerFlops, TensorParallelRanksShareThemEqually) {
    const ModelSpec m = load_model("llama3-8b");
    for (const LayerKind kind : {LayerKind::block, LayerKind::head}) {
        const Flops one = flops_of(build_layer(m, kind, context(m, "orrery", 128)).forward);
        for (const std::int64_t tp : {2, 4, 8}) {
            const Flops share = flops_of(build_layer(m, kind, context(m, "orrery", 128, tp)).forward);
            const double padding = kind == LayerKind::head ? static_cast<double>(padded_vocabulary(m, 128, tp)) /
                                                                 static_cast<double>(padded_vocabulary(m, 128, 1))
                                                           : 1.0;
            EXPECT_DOUBLE_EQ(share.products * static_cast<double>(tp), one.products * padding);
            EXPECT_DOUBLE_EQ(share.attention * static_cast<double>(tp), one.attention);
        }
    }
}

TEST(LayerFlops, TheHeadCostsItsPaddedVocabularyAndTheEmbeddingNone) {
    const ModelSpec m = load_model("gpt2");  // 50257, padded to 50304
    const LayerContext here = context(m, "orrery", 64);
    ASSERT_EQ(here.padded_vocab, 50304);
    const Flops head = flops_of(build_layer(m, LayerKind::head, here).forward);
    EXPECT_DOUBLE_EQ(head.products, 2.0 * 3 * 64 * 768 * 50304);
    const Flops embedding = flops_of(build_layer(m, LayerKind::embedding, here).forward);
    EXPECT_EQ(embedding.products + embedding.attention, 0);
}

}  // namespace
}  // namespace orrery::models
