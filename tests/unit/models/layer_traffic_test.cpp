// Communication volumes of layers, against published ones.
#include <gtest/gtest.h>

#include "tests/unit/models/layer_samples.h"
#include "tests/unit/models/unfused.h"

namespace orrery::models {
namespace {

using samples::Cut;
using samples::wire_bytes;
using Axis = Boundary::Axis;

constexpr std::int64_t kSequence = 2048, kBatch = 2;

struct Wires {
    double forward = 0, backward = 0;
    [[nodiscard]] double both() const { return forward + backward; }
};
Wires wires(const ModelSpec& model, LayerKind kind, const Implementation& implementation, const Cut& cut, Axis axis,
            std::int64_t ranks, Fp8Scaling fp8 = Fp8Scaling::none) {
    LayerContext context = samples::context(model, implementation, kSequence, kBatch, cut);
    context.fp8 = fp8;
    const Layer layer = build_layer(model, kind, context);
    return {wire_bytes(layer.forward, axis, ranks), wire_bytes(layer.backward, axis, ranks)};
}
/// Bytes of one bf16 hidden state.
double hidden_bytes(const ModelSpec& model) {
    return 2.0 * kSequence * kBatch * static_cast<double>(model.hidden);
}

TEST(LayerTraffic, TensorParallelBlocksSendEightAndTenHiddenStates) {
    const Implementation plain = load_implementation("orrery");
    Implementation pipelined = plain;
    pipelined.tensor_parallel.pipelined_gather = true;
    for (const char* name : {"llama3-8b", "gpt2-medium", "bert-large"}) {
        ModelSpec model = load_model(name);
        model.max_positions = kSequence;
        for (const std::int64_t t : {2, 4, 8}) {
            const double unit = hidden_bytes(model) * static_cast<double>(t - 1) / static_cast<double>(t);
            const Wires all = wires(model, LayerKind::block, plain, {.tp = t}, Axis::tp, t);
            EXPECT_DOUBLE_EQ(all.forward, 4 * unit) << name;
            EXPECT_DOUBLE_EQ(all.backward, 4 * unit) << name;
            for (const Implementation& implementation : {plain, pipelined}) {
                const Wires cut =
                    wires(model, LayerKind::block, implementation, {.tp = t, .sequence_parallel = true}, Axis::tp, t);
                EXPECT_DOUBLE_EQ(cut.forward, 4 * unit) << name;
                EXPECT_DOUBLE_EQ(cut.backward, 6 * unit) << name;
            }
        }
    }
}

// Attention and MLP share one reduction; with a common norm the gradients of its output do too.
TEST(LayerTraffic, ParallelResidualsReduceOnce) {
    const Implementation plain = load_implementation("orrery");
    for (const auto& [name, backward] : {std::pair{"gpt-neox-20b", 4.0}, std::pair{"falcon-7b", 2.0}}) {
        ModelSpec model = load_model(name);
        if (model.heads % 2 != 0) model.heads = 64;  // falcon-7b has 71
        const Wires block = wires(model, LayerKind::block, plain, {.tp = 2}, Axis::tp, 2);
        EXPECT_DOUBLE_EQ(block.forward, 2 * 0.5 * hidden_bytes(model)) << name;
        EXPECT_DOUBLE_EQ(block.backward, backward * 0.5 * hidden_bytes(model)) << name;
    }
}

// Cutting a product into pieces does not change its arithmetic.
TEST(LayerTraffic, PipelinedGathersChangeNeitherFlopsNorWeightTraffic) {
    const ModelSpec model = load_model("llama3-8b");
    Implementation implementation = load_implementation("orrery");
    const Cut cut{.tp = 4, .sequence_parallel = true};
    const Layer whole =
        build_layer(model, LayerKind::block, samples::context(model, implementation, kSequence, kBatch, cut));
    implementation.tensor_parallel.pipelined_gather = true;
    const Layer pieces =
        build_layer(model, LayerKind::block, samples::context(model, implementation, kSequence, kBatch, cut));
    EXPECT_DOUBLE_EQ(samples::flops_of(pieces.forward).products, samples::flops_of(whole.forward).products);
    EXPECT_DOUBLE_EQ(samples::flops_of(pieces.backward).products, samples::flops_of(whole.backward).products);
    const auto written_gradients = [](const Layer& layer) {
        double bytes = 0;
        for (const Step& step : layer.backward) {
            const auto* op = std::get_if<Operator>(&step);
            if (op != nullptr && op->kind == OpKind::linear_backward_weight) bytes += op->bytes_written;
        }
        return bytes;
    };
    EXPECT_DOUBLE_EQ(written_gradients(pieces), written_gradients(whole));
    // Every piece states the rows of its whole product.
    for (const std::vector<Step>* steps : {&pieces.forward, &pieces.backward}) {
        for (const Step& step : *steps) {
            const auto* op = std::get_if<Operator>(&step);
            if (op == nullptr || !op->is_matmul()) continue;
            EXPECT_EQ(op->whole_rows(), kSequence * kBatch);
        }
    }
    // A ring of t - 1 exchanges replaces each of 4 collectives in the forward, and 2 of the 6 in the backward.
    const auto count = [](const std::vector<Step>& steps, Boundary::Kind kind) {
        return std::count_if(steps.begin(), steps.end(), [kind](const Step& step) {
            const auto* boundary = std::get_if<Boundary>(&step);
            return boundary != nullptr && boundary->kind == kind;
        });
    };
    EXPECT_EQ(count(pieces.forward, Boundary::Kind::exchange), 12);
    EXPECT_EQ(count(pieces.forward, Boundary::Kind::gather), 0);
    EXPECT_EQ(count(pieces.backward, Boundary::Kind::exchange), 6);
    EXPECT_EQ(count(pieces.backward, Boundary::Kind::gather), 2);
}

// Gathered inputs and output gradients are in fp8, one byte; reductions stay in bf16.
TEST(LayerTraffic, Fp8HalvesGatheredBytes) {
    const ModelSpec model = load_model("llama3-8b");
    const Wires block = wires(model, LayerKind::block, load_implementation("orrery"),
                              {.tp = 2, .sequence_parallel = true}, Axis::tp, 2, Fp8Scaling::delayed);
    const double unit = hidden_bytes(model) / 2;
    EXPECT_DOUBLE_EQ(block.forward, (2 + 2 * 0.5) * unit);
    EXPECT_DOUBLE_EQ(block.backward, (2 + 4 * 0.5) * unit);
}

TEST(LayerTraffic, ContextParallelismMovesKeysAndValues) {
    const ModelSpec model = load_model("llama3-8b");
    const Implementation plain = load_implementation("orrery");
    for (const std::int64_t c : {2, 4, 8}) {
        const auto ranks = static_cast<double>(c);
        const double local = static_cast<double>(kSequence * kBatch) / ranks;
        const double kv = 4 * local * static_cast<double>(model.kv_width());  // bf16 K and V of s/c positions
        const Wires ring = wires(model, LayerKind::block, plain, {.cp = c}, Axis::cp, c);
        EXPECT_DOUBLE_EQ(ring.forward, kv * (ranks - 1));
        EXPECT_DOUBLE_EQ(ring.backward, kv * (ranks - 1) + kv * ranks);  // gradients need one more step to their owner
        const Wires gathered =
            wires(model, LayerKind::block, plain, {.cp = c, .kind = ContextParallel::all_gather}, Axis::cp, c);
        EXPECT_DOUBLE_EQ(gathered.forward, kv * (ranks - 1));
        EXPECT_DOUBLE_EQ(gathered.backward, 2 * kv * (ranks - 1));
        const Wires heads =
            wires(model, LayerKind::block, plain, {.cp = c, .kind = ContextParallel::ulysses}, Axis::cp, c);
        const double each =
            2 * local * (ranks - 1) / ranks * static_cast<double>(2 * model.q_width() + 2 * model.kv_width());
        EXPECT_DOUBLE_EQ(heads.forward, each);
        EXPECT_DOUBLE_EQ(heads.backward, each);
    }
    // 8 key/value heads over 16 ranks: each is sent twice.
    const Wires copied =
        wires(model, LayerKind::block, plain, {.cp = 16, .kind = ContextParallel::ulysses}, Axis::cp, 16);
    EXPECT_DOUBLE_EQ(copied.forward, 2.0 * kSequence * kBatch / 16 * 15 / 16 * (2 * 4096 + 2 * 2048));
}

// Keys and values are exchanged while the attention over those already received is computed.
TEST(LayerTraffic, TheRingSendsBeforeItComputes) {
    const ModelSpec model = load_model("llama3-8b");
    const Layer layer = build_layer(model, LayerKind::block,
                                    samples::context(model, load_implementation("orrery"), 2048, 1, {.cp = 4}));
    int exchanges = 0;
    for (const std::vector<Step>* steps : {&layer.forward, &layer.backward}) {
        for (std::size_t i = 0; i + 1 < steps->size(); ++i) {
            const auto* boundary = std::get_if<Boundary>(&(*steps)[i]);
            if (boundary == nullptr) continue;
            ++exchanges;
            const auto* op = std::get_if<Operator>(&(*steps)[i + 1]);
            if (op == nullptr) continue;  // the exchange of gradients is followed by that of the next keys
            for (const SlotIndex slot : op->in) EXPECT_TRUE(slot == kNoSlot || slot != boundary->out);
        }
    }
    EXPECT_EQ(exchanges, 3 + 3 + 4);
}

TEST(LayerTraffic, ExpertsSendTokensToExpertsAndBack) {
    const ModelSpec model = load_model("mixtral-8x7b");
    const Implementation plain = load_implementation("orrery");
    for (const std::int64_t e : {2, 4, 8}) {
        const double share = static_cast<double>(e - 1) / static_cast<double>(e);
        const Wires block = wires(model, LayerKind::expert_block, plain, {.ep = e}, Axis::ep, e);
        const double counts = share * 8 * static_cast<double>(model.moe.expert_count);
        EXPECT_DOUBLE_EQ(block.forward, 2 * share * 2 * hidden_bytes(model) + counts);
        EXPECT_DOUBLE_EQ(block.backward, 2 * share * 2 * hidden_bytes(model));
        // With tensor and sequence parallelism each rank sends its own tokens.
        const Wires cut = wires(model, LayerKind::expert_block, plain,
                                {.tp = 2, .ep = e, .etp = 2, .sequence_parallel = true}, Axis::ep, e);
        EXPECT_DOUBLE_EQ(cut.both() - counts, (block.both() - counts) / 2);
        const Wires inside = wires(model, LayerKind::expert_block, plain,
                                   {.tp = 2, .ep = e, .etp = 2, .sequence_parallel = true}, Axis::etp, 2);
        EXPECT_DOUBLE_EQ(inside.both(),
                         4 * 0.5 * 2 * hidden_bytes(model) + 8 * static_cast<double>(model.moe.expert_count));
    }
}

// The embedding reduces partial embeddings. The head reduces three fp32 numbers a token, and its input gradient. With
// an online softmax it gathers these numbers of all ranks.
TEST(LayerTraffic, TheVocabularyIsShardedAsInMegatron) {
    const ModelSpec model = load_model("llama3-8b");
    const Implementation plain = samples::unfused(load_implementation("orrery"));
    const double tokens = kSequence * kBatch;
    const Wires embedding = wires(model, LayerKind::embedding, plain, {.tp = 4}, Axis::tp, 4);
    EXPECT_DOUBLE_EQ(embedding.forward, 1.5 * hidden_bytes(model));
    EXPECT_DOUBLE_EQ(embedding.backward, 0);
    const Wires head = wires(model, LayerKind::head, plain, {.tp = 4}, Axis::tp, 4);
    EXPECT_DOUBLE_EQ(head.forward, 1.5 * 3 * 4 * tokens);
    EXPECT_DOUBLE_EQ(head.backward, 1.5 * hidden_bytes(model));
    Implementation online = plain;
    online.kernels.online_softmax = true;
    const Wires gathering = wires(model, LayerKind::head, online, {.tp = 4}, Axis::tp, 4);
    EXPECT_DOUBLE_EQ(gathering.forward, 0.75 * 4 * 3 * 4 * tokens);
    EXPECT_DOUBLE_EQ(gathering.backward, head.backward);
}

/// With gathered logits the loss needs no statistics of other ranks: a gather in the activations' type replaces the
/// reductions of three numbers a token, or their gathers.
TEST(LayerTraffic, GatheredLogitsReplaceTheStatistics) {
    const ModelSpec model = load_model("llama3-8b");
    for (const bool online : {false, true}) {
        Implementation implementation = load_implementation("orrery");
        implementation.kernels.online_softmax = online;
        implementation.kernels.fused_cross_entropy = false;
        const Wires parts = wires(model, LayerKind::head, implementation, {.tp = 4}, Axis::tp, 4);
        implementation.kernels.gathers_logits = true;
        const Wires gathered = wires(model, LayerKind::head, implementation, {.tp = 4}, Axis::tp, 4);
        const double tokens = static_cast<double>(kSequence * kBatch), share = 3.0 / 4;
        // An all-reduce moves each number twice, a gather moves those of all ranks once.
        const double statistics = 3 * 4 * tokens * (online ? 4 : 2) * share;
        EXPECT_DOUBLE_EQ(gathered.forward - parts.forward,
                         2.0 * tokens * static_cast<double>(model.vocab) * share - statistics);
        EXPECT_DOUBLE_EQ(gathered.backward, parts.backward);
    }
}

}  // namespace
}  // namespace orrery::models
