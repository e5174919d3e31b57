// FLOPs of the operators of layers, against published closed forms.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "models/implementation.h"
#include "models/layer.h"
#include "tests/unit/models/layer_samples.h"

namespace orrery::models {
namespace {

using samples::Cut;
using samples::Flops;
using samples::flops_of;

LayerContext context(const ModelSpec& model, const char* implementation, std::int64_t sequence, std::int64_t tp = 1) {
    LayerContext context = samples::context(model, load_implementation(implementation), sequence, 3, {.tp = tp});
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

// Without the part above the diagonal, (s + 1) / 2s of the square remains. The fused backward pass recomputes the
// scores: five products instead of four.
TEST(LayerFlops, CausalAndFusedAttentionCountComputedFlops) {
    const ModelSpec m = load_model("llama3-8b");
    constexpr std::int64_t kSequence = 256;
    const Layer whole = build_layer(m, LayerKind::block, context(m, "megatron-lm-2022", kSequence));
    const Layer skipped = build_layer(m, LayerKind::block, context(m, "orrery", kSequence));
    EXPECT_DOUBLE_EQ(flops_of(skipped.forward).attention,
                     flops_of(whole.forward).attention * (kSequence + 1) / (2.0 * kSequence));
    EXPECT_DOUBLE_EQ(flops_of(skipped.backward).attention, flops_of(skipped.forward).attention * 2.5);
    EXPECT_DOUBLE_EQ(flops_of(skipped.forward).products, flops_of(whole.forward).products);
}

TEST(LayerFlops, AreSharedEquallyByTensorParallelRanks) {
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

/// Forward FLOPs of all ranks of one replica for one micro-batch.
double forward_flops(const ModelSpec& model, const LayerContext& context) {
    double sum = 0;
    for (const LayerKind kind : samples::kinds_of(model)) {
        const Layer layer = build_layer(model, kind, context);
        const Flops forward = flops_of(layer.forward), backward = flops_of(layer.backward);
        sum += static_cast<double>(samples::count_of(model, kind)) * (forward.products + forward.attention);
        EXPECT_NEAR(backward.products, 2 * forward.products, 1e-9 * backward.products) << model.name;
        const double factor = context.implementation.kernels.fused_attention ? 2.5 : 2;
        // The scores' product has the width of q, the product with the values that of v.
        if (!model.has_latent_attention()) {
            EXPECT_NEAR(backward.attention, factor * forward.attention, 1e-9 * backward.attention) << model.name;
        }
    }
    return sum * static_cast<double>(context.tp_degree * context.cp_degree);
}

// Under any sharding, the forward is a third of model_flops_per_sequence, which counts forward and backward.
TEST(LayerFlops, EveryFamilyCostsItsClosedFormUnderAnySharding) {
    constexpr std::int64_t kSequence = 128, kBatch = 2;
    for (const bool fused : {true, false}) {
        Implementation implementation = load_implementation("orrery");
        implementation.kernels.causal_skip = false;
        implementation.kernels.fused_attention = fused;
        for (const ModelSpec& model : samples::families()) {
            if (model.sliding_window > 0) continue;  // this convention counts the full square
            const double closed =
                kBatch * model_flops_per_sequence(model, kSequence, FlopsConvention::full_attention) / 3;
            for (const Cut& cut :
                 {Cut{}, Cut{.tp = 2, .sequence_parallel = true}, Cut{.tp = 8, .sequence_parallel = true}, Cut{.cp = 4},
                  Cut{.cp = 2, .kind = ContextParallel::all_gather}, Cut{.cp = 8, .kind = ContextParallel::ulysses},
                  Cut{.tp = 2, .cp = 4, .sequence_parallel = true, .kind = ContextParallel::ulysses}, Cut{.ep = 4},
                  Cut{.tp = 2, .cp = 2, .ep = 4, .etp = 2, .sequence_parallel = true}}) {
                if (!fused && cut.cp > 1 && cut.kind != ContextParallel::ulysses) continue;
                if (!model.has_experts() && cut.ep > 1) continue;
                const double flops =
                    forward_flops(model, samples::context(model, implementation, kSequence, kBatch, cut));
                ASSERT_EQ(model.vocab % 8, 0);  // no padding
                // With fewer key/value heads than ranks every replica of a head is projected.
                const double more = static_cast<double>(std::max(cut.tp / model.kv_heads, std::int64_t{1}) - 1);
                const double copies =
                    more * static_cast<double>(4 * kSequence * kBatch * model.layers * model.hidden * model.kv_width());
                EXPECT_NEAR(flops / (closed + copies), 1, 1e-12)
                    << model.name << " tp " << cut.tp << " cp " << cut.cp << " ep " << cut.ep << " fused " << fused;
            }
        }
    }
}

/// The release of DeepSeek-V3 counts 11.5 B parameters of its one prediction layer beside the shared embedding and head
/// (README_WEIGHTS.md of deepseek-ai/DeepSeek-V3).
TEST(LeftOutLayers, OfDeepSeekV3HaveThePublishedSize) {
    ModelSpec model = load_model("deepseek-v3");
    ASSERT_EQ(model.left_out_prediction_layers, 1);
    constexpr std::int64_t kSequence = 4096;
    for (const FlopsConvention convention :
         {FlopsConvention::palm, FlopsConvention::full_attention, FlopsConvention::causal_half}) {
        const LeftOutLayers one = prediction_layers_left_out(model, kSequence, convention);
        EXPECT_NEAR(static_cast<double>(one.parameters), 11.5e9, 0.12e9);
        // One block more, a projection of 2h to h, and the head once more.
        ModelSpec more = model;
        ++more.layers;
        const auto h = static_cast<double>(model.hidden), s = static_cast<double>(kSequence);
        const double products = 2 * h * h + h * static_cast<double>(model.vocab);
        const double norms = convention == FlopsConvention::palm ? 3 * h : 0;  // this convention counts all parameters
        const double block = model_flops_per_sequence(more, kSequence, convention) -
                             model_flops_per_sequence(model, kSequence, convention);
        EXPECT_NEAR(one.flops / (block + 6 * s * (products + norms)), 1, 1e-9);
        EXPECT_EQ(one.parameters,
                  parameter_count(more) - parameter_count(model) + 2 * model.hidden * model.hidden + 3 * model.hidden);
        ModelSpec two = model;
        two.left_out_prediction_layers = 2;
        EXPECT_EQ(prediction_layers_left_out(two, kSequence, convention).parameters, 2 * one.parameters);
        EXPECT_EQ(prediction_layers_left_out(load_model("llama3-8b"), kSequence, convention).flops, 0);
    }
}

/// Pairs in sequences whose documents end after any token with the same probability, summed over their distance.
TEST(LayerFlops, AttentionWithinDocumentsCostsThePairsWithinThem) {
    constexpr std::int64_t kSequence = 512;
    for (const std::int64_t window : {0, 100}) {
        ModelSpec model = load_model("gpt2");
        model.sliding_window = window;
        const auto forward = [&](std::int64_t document_tokens) {
            Implementation implementation = load_implementation("orrery");
            implementation.kernels.document_tokens = document_tokens;
            return build_layer(model, LayerKind::block, samples::context(model, implementation, kSequence, 1, {}))
                .forward;
        };
        const auto attention = [&](std::int64_t document_tokens) {
            return flops_of(forward(document_tokens)).attention;
        };
        const auto reach = [&](std::int64_t document_tokens) {
            for (const Step& step : forward(document_tokens)) {
                const auto* op = std::get_if<Operator>(&step);
                if (op != nullptr && op->kind == OpKind::attention_forward) return static_cast<double>(op->reach);
            }
            return -1.0;
        };
        const auto pairs = [&](double goes_on) {
            double sum = 0;
            for (std::int64_t d = 0; d < (window > 0 ? window : kSequence); ++d) {
                sum += static_cast<double>(kSequence - d) * std::pow(goes_on, d);
            }
            return sum;
        };
        for (const std::int64_t mean : {1, 2, 60, 1400}) {
            EXPECT_NEAR(attention(mean) / attention(0), pairs(1 - 1.0 / static_cast<double>(mean)) / pairs(1), 1e-9);
            const double whole = kSequence * (kSequence + 1) / 2.0;
            EXPECT_NEAR(reach(mean), kSequence * pairs(1 - 1.0 / static_cast<double>(mean)) / whole, 0.5);
        }
        EXPECT_NEAR(reach(0), window == 0 ? kSequence : kSequence * pairs(1) / (kSequence * (kSequence + 1) / 2.0),
                    0.5);
        EXPECT_NEAR(attention(1 << 30) / attention(0), 1, 1e-5);  // one document
    }
}

// Zig-zag chunks: all ranks have the same number of pairs, and together exactly those of a single rank.
TEST(LayerFlops, ContextParallelRanksShareTheCausalTriangle) {
    for (const ModelSpec& model : samples::families()) {
        if (model.has_experts()) continue;
        const auto attention = [&](const Cut& cut, bool backward) {
            const Layer layer = build_layer(model, LayerKind::block,
                                            samples::context(model, load_implementation("orrery"), 256, 2, cut));
            return flops_of(backward ? layer.backward : layer.forward).attention;
        };
        for (const bool backward : {false, true}) {
            const double alone = attention({}, backward);
            for (const std::int64_t cp : {2, 4, 8}) {
                for (const ContextParallel kind :
                     {ContextParallel::ring, ContextParallel::all_gather, ContextParallel::ulysses}) {
                    if (kind == ContextParallel::ring && model.sliding_window > 0) continue;
                    const double shared = attention({.cp = cp, .kind = kind}, backward) * static_cast<double>(cp);
                    EXPECT_NEAR(shared / alone, 1, 1e-12) << model.name << " cp " << cp << " " << name_of(kind);
                }
            }
        }
    }
}

TEST(LayerFlops, RingStepsAttendToHalfOfTheirKeys) {
    const ModelSpec model = load_model("llama3-8b");
    const Layer layer = build_layer(model, LayerKind::block,
                                    samples::context(model, load_implementation("orrery"), 4096, 1, {.cp = 4}));
    std::vector<const Operator*> steps;
    for (const Step& step : layer.forward) {
        const auto* op = std::get_if<Operator>(&step);
        if (op != nullptr && op->is_attention()) steps.push_back(op);
    }
    ASSERT_EQ(steps.size(), 4U);
    const double width = 4.0 * 4096;  // two products over all heads
    EXPECT_DOUBLE_EQ(steps[0]->flops, width * 1024 * 1025 / 2);
    for (std::size_t i = 1; i < 4; ++i) {
        EXPECT_DOUBLE_EQ(steps[i]->flops, width * 1024 * 512);
        EXPECT_EQ(steps[i]->queries, 1024);
        EXPECT_EQ(steps[i]->sequence, 512);
    }
}

// The busiest rank computes its share times the imbalance; padded to capacity, every rank computes its capacity.
TEST(LayerFlops, ExpertLoadScalesTheExpertProducts) {
    const ModelSpec model = load_model("mixtral-8x7b");
    const auto expert_flops = [&](const ExpertLoad& load, std::int64_t ep) {
        LayerContext context = samples::context(model, load_implementation("orrery"), 1024, 1, {.ep = ep});
        context.expert_load = load;
        double sum = 0;
        for (const Step& step : build_layer(model, LayerKind::expert_block, context).forward) {
            const auto* op = std::get_if<Operator>(&step);
            if (op != nullptr && op->is_expert_matmul()) sum += op->flops;
        }
        return sum;
    };
    const double even = 6.0 * 2 * 1024 * 4096 * 14336;  // topk * 6 s h f
    EXPECT_DOUBLE_EQ(expert_flops({}, 8), even);
    EXPECT_NEAR(expert_flops({.imbalance = 1.5}, 8), 1.5 * even, 1);
    EXPECT_DOUBLE_EQ(expert_flops({.imbalance = 1.5}, 1), even);  // all experts are on this rank
    EXPECT_NEAR(expert_flops({.imbalance = 1.5, .capacity_factor = 1.25}, 8), 1.25 * even, 1);
    EXPECT_NEAR(expert_flops({.capacity_factor = 1.25}, 8), even, 1);
    EXPECT_NEAR(expert_flops({.capacity_factor = 1.25, .pads_to_capacity = true}, 8), 1.25 * even, 1);
    EXPECT_NEAR(expert_flops({.capacity_factor = 1.25, .pads_to_capacity = true}, 1), 1.25 * even, 1);
}

// Eager kernels have the same products and more memory traffic.
TEST(LayerFlops, KernelChoicesChangePassesButNotProducts) {
    struct Choice {
        const char* name;
        bool KernelChoices::*field;
        const char* family;
        LayerKind kind;
    };
    const auto bytes_of = [](const Layer& layer) {
        double sum = 0;
        for (const std::vector<Step>* steps : {&layer.forward, &layer.backward}) {
            for (const Step& step : *steps) {
                const auto* op = std::get_if<Operator>(&step);
                if (op != nullptr) sum += op->bytes_read + op->bytes_written;
            }
        }
        return sum;
    };
    for (const Choice& choice :
         {Choice{"fused_norm", &KernelChoices::fused_norm, "tiny-llama", LayerKind::block},
          Choice{"fused_norm", &KernelChoices::fused_norm, "gpt", LayerKind::block},
          Choice{"fused_rope", &KernelChoices::fused_rope, "tiny-llama", LayerKind::block},
          Choice{"fused_activation", &KernelChoices::fused_activation, "tiny-llama", LayerKind::block},
          Choice{"fused_residual", &KernelChoices::fused_residual, "gpt", LayerKind::block},
          Choice{"fused_residual_norm", &KernelChoices::fused_residual_norm, "gpt", LayerKind::block},
          Choice{"fused_residual_norm", &KernelChoices::fused_residual_norm, "tiny-llama", LayerKind::block},
          Choice{"gelu_epilogue", &KernelChoices::gelu_epilogue, "gpt", LayerKind::block},
          Choice{"online_softmax", &KernelChoices::online_softmax, "gpt", LayerKind::head},
          Choice{"fused_weight_gradient", &KernelChoices::fused_weight_gradient, "mixtral", LayerKind::expert_block},
          Choice{"merged_projections", &KernelChoices::merged_projections, "tiny-llama", LayerKind::block},
          Choice{"merged_gate", &KernelChoices::merged_gate, "tiny-llama", LayerKind::block},
          Choice{"fused_cross_entropy", &KernelChoices::fused_cross_entropy, "tiny-llama", LayerKind::head}}) {
        for (const ModelSpec& model : samples::families()) {
            if (model.name != choice.family) continue;
            Implementation implementation = load_implementation("orrery");
            const Layer fused = build_layer(model, choice.kind, samples::context(model, implementation, 256, 2));
            implementation.kernels.*choice.field = false;
            const Layer eager = build_layer(model, choice.kind, samples::context(model, implementation, 256, 2));
            EXPECT_EQ(flops_of(eager.forward).products, flops_of(fused.forward).products) << choice.name;
            EXPECT_EQ(flops_of(eager.backward).products, flops_of(fused.backward).products) << choice.name;
            EXPECT_GT(bytes_of(eager), bytes_of(fused)) << choice.name;
            EXPECT_GT(eager.forward.size() + eager.backward.size(), fused.forward.size() + fused.backward.size())
                << choice.name;
        }
    }
}

// A framework's copies between products and attention cost only memory traffic.
TEST(LayerFlops, CopiesOfProjectionsCostOnlyBytes) {
    const ModelSpec model = load_model("llama3-8b");
    const std::int64_t rows = 256 * 2, q = 4096, kv = 2 * 1024, ffn = 14336;
    const auto measured = [&](const Implementation& implementation) {
        struct {
            double forward = 0, backward = 0, flops = 0;
        } sum;
        const Layer layer = build_layer(model, LayerKind::block, samples::context(model, implementation, 256, 2));
        for (const std::vector<Step>* steps : {&layer.forward, &layer.backward}) {
            for (const Step& step : *steps) {
                const auto* op = std::get_if<Operator>(&step);
                if (op == nullptr) continue;
                (steps == &layer.forward ? sum.forward : sum.backward) += op->bytes_read + op->bytes_written;
                sum.flops += op->flops;
            }
        }
        return sum;
    };
    const auto added = [&](bool KernelChoices::*choice, Implementation implementation) {
        const auto before = measured(implementation);
        implementation.kernels.*choice = true;
        auto after = measured(implementation);
        EXPECT_EQ(after.flops, before.flops);
        return std::pair(after.forward - before.forward, after.backward - before.backward);
    };
    const Implementation fused = load_implementation("orrery");
    const auto bytes = [&](std::int64_t width) { return 2.0 * 2.0 * static_cast<double>(rows * width); };  // in and out
    using Moved = std::pair<double, double>;
    EXPECT_EQ(added(&KernelChoices::copies_qkv, fused), Moved(bytes(q + kv), 0));
    EXPECT_EQ(added(&KernelChoices::splits_projections, fused), Moved(0, bytes(q + kv)));
    EXPECT_EQ(added(&KernelChoices::joins_kv, fused), Moved(2 * bytes(kv), 2 * bytes(kv)));
    Implementation eager = fused;
    eager.kernels.fused_activation = false;
    EXPECT_EQ(added(&KernelChoices::splits_projections, eager), Moved(0, bytes(q + kv) + bytes(2 * ffn)));
    eager.kernels.merged_gate = false;
    EXPECT_EQ(added(&KernelChoices::splits_projections, eager), Moved(0, bytes(q + kv)));
    Implementation apart = fused;
    apart.kernels.merged_projections = false;
    EXPECT_EQ(added(&KernelChoices::splits_projections, apart), Moved(0, 0));
    EXPECT_EQ(added(&KernelChoices::copies_qkv, apart), Moved(0, 0));
}

// cuDNN's attention writes the gradients of q, k and v side by side, so no concatenation is needed unless there is a
// rotation.
TEST(LayerFlops, GradientsSideBySideAreNotConcatenated) {
    Implementation implementation = load_implementation("orrery");
    implementation.kernels.splits_projections = true;
    const auto steps = [&](const std::string& name, const std::string& kernel) {
        const ModelSpec model = load_model(name);
        implementation.kernels.attention_kernel = kernel;
        return build_layer(model, LayerKind::block, samples::context(model, implementation, 256, 2)).backward.size();
    };
    EXPECT_EQ(steps("gpt3-175b", "cudnn") + 1, steps("gpt3-175b", "flash-2"));
    EXPECT_EQ(steps("llama3-8b", "cudnn"), steps("llama3-8b", "flash-2"));
}

TEST(LayerFlops, UngroupedExpertsRunOneAfterAnother) {
    const ModelSpec model = load_model("mixtral-8x7b");
    Implementation implementation = load_implementation("orrery");
    for (const bool grouped : {true, false}) {
        implementation.kernels.grouped_experts = grouped;
        int products = 0;
        double flops = 0;
        const Layer layer =
            build_layer(model, LayerKind::expert_block, samples::context(model, implementation, 100, 1));
        for (const Step& step : layer.forward) {
            const auto* op = std::get_if<Operator>(&step);
            if (op == nullptr || !op->is_expert_matmul()) continue;
            ++products;
            flops += op->flops;
            EXPECT_EQ(op->groups, grouped ? 8 : 1);
        }
        EXPECT_EQ(products, grouped ? 2 : 16);
        EXPECT_DOUBLE_EQ(flops, 6.0 * 2 * 100 * 4096 * 14336);
    }
}

}  // namespace
}  // namespace orrery::models
