// Layers of every family under every sharding: slots are written before they are read, parameters are those of the
// model, and impossible shardings are refused.
#include "models/layer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <set>

#include "core/error.h"
#include "tests/unit/core/test_folder.h"
#include "tests/unit/models/layer_samples.h"

namespace orrery::models {
namespace {

using samples::Cut;

/// Follows the reads and writes of a layer's passes.
class Walk {
  public:
    Walk(const Layer& layer, const LayerContext& context, std::string name)
        : layer_(layer),
          context_(context),
          name_(std::move(name)),
          written_(layer.slots.size()),
          read_in_backward_(layer.slots.size()) {
        for (const SlotIndex i : layer.slots.indices()) {
            const SlotRole role = layer.slots[i].role;
            written_[i] = role == SlotRole::hidden_in || role == SlotRole::parameter || role == SlotRole::gradient ||
                          role == SlotRole::loss ||
                          (role == SlotRole::hidden_gradient && layer.kind != LayerKind::head);
        }
        pass(layer.prepare);
        pass(layer.forward);
        for (const SlotIndex i : layer.slots.indices()) {
            EXPECT_TRUE(written_[i] || layer.slots[i].role != SlotRole::saved) << at(i) << " saved, not written";
        }
        backward_ = true;
        pass(layer.backward);
        for (const SlotIndex i : layer.slots.indices()) {
            const SlotDecl& slot = layer.slots[i];
            EXPECT_TRUE(read_in_backward_[i] || slot.role != SlotRole::saved) << at(i) << " saved, not read";
            EXPECT_TRUE(gradients_[i] || slot.role != SlotRole::parameter) << at(i);
        }
    }

  private:
    [[nodiscard]] std::string at(SlotIndex slot) const {
        return name_ + " " + std::string(name_of(layer_.kind)) + " " + layer_.slots[slot].name;
    }
    void pass(const std::vector<Step>& steps) {
        IndexedVector<SlotIndex, bool> used(layer_.slots.size());
        for (const Step& step : steps) {
            if (const auto* boundary = std::get_if<Boundary>(&step)) {
                cross(*boundary);
                const bool inside = layer_.kind == LayerKind::block || layer_.kind == LayerKind::expert_block;
                EXPECT_EQ(boundary->part != BlockPart::none, inside) << name_ << " " << at(boundary->in);
                for (const SlotIndex slot : {boundary->in, boundary->send_counts, boundary->receive_counts}) {
                    if (slot == kNoSlot) continue;
                    read(slot);
                    used[slot] = true;
                }
                write(boundary->out);
                continue;
            }
            const Operator& op = std::get<Operator>(step);
            const std::string what = name_ + " " + std::string(name_of(op.kind));
            EXPECT_TRUE(std::isfinite(op.flops) && op.flops >= 0) << what;
            EXPECT_GE(op.bytes_read, 0) << what;
            EXPECT_GE(op.bytes_written, 0) << what;
            EXPECT_GT(op.bytes_read + op.bytes_written, 0) << what;
            const bool block = layer_.kind == LayerKind::block || layer_.kind == LayerKind::expert_block;
            EXPECT_EQ(op.part != BlockPart::none, block) << what;
            for (const SlotIndex slot : op.in) {
                if (slot == kNoSlot) continue;
                read(slot);
                used[slot] = true;
            }
            for (const SlotIndex slot : op.out) {
                if (slot != kNoSlot) write(slot);
            }
        }
        // A transient lives inside one pass and must be read in it.
        for (const SlotIndex i : layer_.slots.indices()) {
            if (layer_.slots[i].role != SlotRole::transient) continue;
            EXPECT_TRUE(used[i] || !written_[i]) << at(i) << " written, not read";
            written_[i] = false;
        }
    }
    void read(SlotIndex i) {
        EXPECT_TRUE(written_[i]) << at(i) << (backward_ ? " backward" : " forward") << " read before it was written";
        if (backward_) read_in_backward_[i] = true;
    }
    void write(SlotIndex i) {
        const SlotDecl& decl = layer_.slots[i];
        EXPECT_NE(decl.role, SlotRole::parameter) << at(i);
        EXPECT_NE(decl.role, SlotRole::hidden_in) << at(i);
        if (decl.role == SlotRole::gradient) {
            EXPECT_TRUE(backward_) << at(i);
            EXPECT_EQ(decl.dtype, context_.gradient_dtype);
            gradients_[decl.parameter_slot] = true;
        }
        written_[i] = true;
    }
    void cross(const Boundary& boundary) {
        const SlotDecl& in = layer_.slots[boundary.in];
        const SlotDecl& out = layer_.slots[boundary.out];
        const std::string what = name_ + " " + in.name + " -> " + out.name;
        const std::array<std::int64_t, 5> degrees{context_.tp_degree, context_.cp_degree, context_.ep_degree,
                                                  context_.etp_degree, 1};
        const std::int64_t ranks = degrees[static_cast<std::size_t>(boundary.axis)];
        EXPECT_GT(ranks, 1) << what;
        EXPECT_EQ(in.dtype, out.dtype) << what;
        EXPECT_EQ(in.dtype, boundary.dtype) << what;
        switch (boundary.kind) {
            case Boundary::Kind::broadcast:
            case Boundary::Kind::reduce_to_root:
                ADD_FAILURE() << what << ": no layer has a root";
                break;
            case Boundary::Kind::gather:
                EXPECT_EQ(boundary.elements, out.elements()) << what;
                EXPECT_EQ(boundary.elements, in.elements() * ranks) << what;
                break;
            case Boundary::Kind::reduce_scatter:
                EXPECT_EQ(boundary.elements, in.elements()) << what;
                EXPECT_EQ(boundary.elements, out.elements() * ranks) << what;
                break;
            case Boundary::Kind::reduce:
            case Boundary::Kind::reduce_max:
                EXPECT_EQ(boundary.in, boundary.out) << what;
                EXPECT_EQ(boundary.elements, in.elements()) << what;
                break;
            case Boundary::Kind::exchange:
                EXPECT_EQ(boundary.elements, in.elements()) << what;
                EXPECT_EQ(boundary.elements, out.elements()) << what;
                break;
            case Boundary::Kind::all_to_all:  // uneven over ep: the size of the busiest rank
                EXPECT_EQ(boundary.elements, std::max(in.elements(), out.elements())) << what;
                EXPECT_TRUE(boundary.axis == Boundary::Axis::ep || in.elements() == out.elements()) << what;
                break;
        }
    }

    const Layer& layer_;
    const LayerContext& context_;
    std::string name_;
    IndexedVector<SlotIndex, bool> written_, read_in_backward_;
    std::map<SlotIndex, bool> gradients_;
    bool backward_ = false;
};

bool fits(const ModelSpec& model, const Implementation& implementation, const Cut& cut) {
    if (model.has_experts() && cut.tp > 1 && !cut.sequence_parallel) return false;
    if (cut.cp == 1) return true;
    if (cut.kind == ContextParallel::ring && model.sliding_window > 0) return false;
    return cut.kind == ContextParallel::ulysses || implementation.kernels.fused_attention;
}

TEST(Layers, ReadOnlyWrittenSlotsAndSaveWhatBackwardReads) {
    std::mt19937 random(20240611);
    const auto coin = [&] { return random() % 2 == 0; };
    const auto one_of = [&](std::initializer_list<std::int64_t> values) {
        return *(values.begin() + random() % values.size());
    };
    int built = 0;
    for (int round = 0; round < 60; ++round) {
        for (const ModelSpec& model : samples::families()) {
            Implementation implementation = load_implementation("orrery");
            KernelChoices& k = implementation.kernels;
            for (bool* choice : {&k.fused_attention,
                                 &k.causal_skip,
                                 &k.fused_softmax,
                                 &k.fused_norm,
                                 &k.fused_rope,
                                 &k.repeats_kv_heads,
                                 &k.fused_activation,
                                 &k.fused_residual,
                                 &k.fused_residual_norm,
                                 &k.gelu_epilogue,
                                 &k.online_softmax,
                                 &k.fused_cross_entropy,
                                 &k.fused_weight_gradient,
                                 &k.grouped_experts,
                                 &k.merged_projections,
                                 &k.merged_gate,
                                 &k.masks_without_dropout,
                                 &k.splits_projections,
                                 &k.copies_qkv,
                                 &k.joins_kv,
                                 &implementation.tensor_parallel.overlaps_input_gradient,
                                 &implementation.tensor_parallel.reduces_inputs_apart,
                                 &implementation.tensor_parallel.pipelined_gather}) {
                *choice = coin();
            }
            Cut cut{.tp = one_of({1, 2, 4, 8}), .cp = one_of({1, 1, 2, 4}), .sequence_parallel = coin()};
            cut.kind = static_cast<ContextParallel>(random() % 3);
            if (cut.kind == ContextParallel::ulysses && 8 / cut.tp % cut.cp != 0) continue;
            if (model.has_experts()) {
                cut.ep = one_of({1, 2, 4, 8});
                cut.etp = one_of({1, 2});
            }
            if (!fits(model, implementation, cut)) continue;
            LayerContext context = samples::context(model, implementation, 128, 2, cut);
            context.dropout = coin() ? 0.1 : 0.0;
            context.fp8 = static_cast<Fp8Scaling>(random() % 4);
            if (coin()) context.activation_dtype = context.parameter_dtype = context.compute_dtype = DType::fp32;
            context.expert_load = {
                .imbalance = coin() ? 1.0 : 1.4, .capacity_factor = coin() ? 0.0 : 1.25, .pads_to_capacity = coin()};
            for (const LayerKind kind : samples::kinds_of(model)) {
                const Layer layer = build_layer(model, kind, context);
                const std::string name = "round " + std::to_string(round) + " " + model.name + " tp" +
                                         std::to_string(cut.tp) + " cp" + std::to_string(cut.cp) + " " +
                                         std::string(name_of(cut.kind));
                Walk(layer, context, name);
                EXPECT_EQ(layer.prepare.empty(),
                          context.fp8 == Fp8Scaling::none || kind == LayerKind::embedding || kind == LayerKind::head);
                ++built;
                if (HasFailure()) return;
            }
        }
    }
    EXPECT_GT(built, 1000);
}

/// Elements of the whole tensors that the rank's parameter slots are parts of.
std::int64_t whole_elements(const ModelSpec& model, const Layer& layer, const Cut& cut) {
    std::int64_t sum = 0;
    for (const SlotDecl& slot : layer.slots) {
        if (slot.role != SlotRole::parameter || slot.tied) continue;
        std::int64_t parts = 0;
        for (const ParameterPart& part : slot.parts) parts += part.local_rows * part.local_cols;
        EXPECT_EQ(parts, slot.elements()) << model.name << " " << slot.name;
        if (slot.name == "embedding.weight" || slot.name == "head.weight" || slot.name == "head.bias") {
            sum += slot.parts.front().global_rows * slot.parts.front().global_cols;  // without padding
        } else if (slot.expert) {
            sum += slot.elements() * cut.ep * cut.etp;
        } else if (slot.shard == ShardDim::replicated) {
            sum += slot.elements();
        } else if (slot.gradient_sum == GradientSum::kv_group) {
            sum += slot.elements() * model.kv_heads;
        } else {
            sum += slot.elements() * cut.tp;
        }
    }
    return sum;
}

TEST(Layers, HaveTheModelsParameters) {
    std::vector<ModelSpec> models = samples::families();
    for (const char* name : {"llama3-8b", "qwen3-8b", "gpt2", "bert-base", "bloom-176b", "falcon-7b", "gpt-neox-20b",
                             "opt-1.3b", "mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3"}) {
        models.push_back(load_model(name));
    }
    for (const ModelSpec& model : models) {
        for (const std::int64_t tp : {1, 2, 4, 8}) {
            Cut cut{.tp = tp, .sequence_parallel = tp > 1};
            if (model.heads % tp != 0 || (model.kv_heads % tp != 0 && tp % model.kv_heads != 0)) continue;
            if (model.has_experts()) cut.ep = cut.etp = tp > 1 ? 2 : 1;
            const LayerContext context = samples::context(model, load_implementation("orrery"), 128, 1, cut);
            std::int64_t sum = 0;
            for (const LayerKind kind : samples::kinds_of(model)) {
                const Layer layer = build_layer(model, kind, context);
                sum += samples::count_of(model, kind) * whole_elements(model, layer, cut);
            }
            const std::int64_t pooler = model.pooler ? model.hidden * (model.hidden + 1) : 0;
            EXPECT_EQ(sum, parameter_count(model) - pooler) << model.name << " tp " << tp;
        }
    }
}

// With sequence parallelism every rank sees only its tokens; replicas of a key/value head see only their query heads.
TEST(Layers, MarkPartialGradients) {
    const auto sums = [](const std::string& family, const Cut& cut, LayerKind kind) {
        std::map<std::string, GradientSum> result;
        for (const ModelSpec& model : samples::families()) {
            if (model.name != family) continue;
            const LayerContext context = samples::context(model, load_implementation("orrery"), 128, 1, cut);
            for (const SlotDecl& slot : build_layer(model, kind, context).slots) {
                if (slot.role == SlotRole::parameter) result[slot.name] = slot.gradient_sum;
            }
        }
        return result;
    };
    auto block = sums("one-head", {.tp = 4, .sequence_parallel = true}, LayerKind::block);
    EXPECT_EQ(block.at("norm1.weight"), GradientSum::tp);
    EXPECT_EQ(block.at("attention.q.weight"), GradientSum::none);
    EXPECT_EQ(block.at("attention.kv.weight"), GradientSum::kv_group);
    EXPECT_EQ(block.at("mlp.fc1.weight"), GradientSum::none);
    EXPECT_EQ(block.count("attention.qkv.weight"), 0U);
    block = sums("one-head", {.tp = 4}, LayerKind::block);
    EXPECT_EQ(block.at("norm1.weight"), GradientSum::none);
    EXPECT_EQ(block.at("attention.kv.weight"), GradientSum::kv_group);
    block = sums("qwen3", {.tp = 4}, LayerKind::block);
    EXPECT_EQ(block.at("attention.q_norm.weight"), GradientSum::tp);
    EXPECT_EQ(block.at("attention.qkv.weight"), GradientSum::none);
    block = sums("deepseek", {.tp = 2, .ep = 2, .sequence_parallel = true}, LayerKind::expert_block);
    EXPECT_EQ(block.at("router.weight"), GradientSum::tp);
    EXPECT_EQ(block.at("attention.kv_down.weight"), GradientSum::tp);
    EXPECT_EQ(block.at("attention.kv_up.weight"), GradientSum::none);
    EXPECT_EQ(block.at("experts.fc1.weight"), GradientSum::none);
    EXPECT_EQ(block.at("shared.fc1.weight"), GradientSum::none);
}

// The reduction of dX is followed by the weight gradient, with which it overlaps, or by the norm's backward.
TEST(Layers, OrderTheInputGradientsReduction) {
    const ModelSpec model = samples::families().front();
    for (const bool overlaps : {true, false}) {
        Implementation implementation = load_implementation("orrery");
        implementation.tensor_parallel.overlaps_input_gradient = overlaps;
        const Layer layer =
            build_layer(model, LayerKind::block, samples::context(model, implementation, 128, 1, {.tp = 2}));
        int reductions = 0;
        for (std::size_t i = 0; i + 1 < layer.backward.size(); ++i) {
            if (!std::holds_alternative<Boundary>(layer.backward[i])) continue;
            ++reductions;
            const auto& next = std::get<Operator>(layer.backward[i + 1]);
            EXPECT_EQ(next.kind, overlaps ? OpKind::linear_backward_weight : OpKind::rms_norm_backward);
        }
        EXPECT_EQ(reductions, 2);
    }
}

// With an autograd function for each product, gate and up have two reductions, one for each product.
TEST(Layers, ReduceTheInputGradientsSeparately) {
    const ModelSpec model = load_model("llama3-8b");
    const auto reductions = [&](bool apart, bool merged_gate, bool sequence_parallel) {
        Implementation implementation = load_implementation("orrery");
        implementation.tensor_parallel.reduces_inputs_apart = apart;
        implementation.kernels.merged_gate = merged_gate;
        const Layer layer = build_layer(
            model, LayerKind::block,
            samples::context(model, implementation, 128, 1, {.tp = 2, .sequence_parallel = sequence_parallel}));
        return std::count_if(layer.backward.begin(), layer.backward.end(), [](const Step& step) {
            const auto* boundary = std::get_if<Boundary>(&step);
            return boundary != nullptr &&
                   (boundary->kind == Boundary::Kind::reduce || boundary->kind == Boundary::Kind::reduce_scatter);
        });
    };
    EXPECT_EQ(reductions(false, false, false), 2);
    EXPECT_EQ(reductions(true, true, false), 2);
    EXPECT_EQ(reductions(true, false, false), 3);
    EXPECT_EQ(reductions(true, false, true), 2);
}

/// The name of the first slot that recomputing the parts needs and that is neither saved nor recomputed; "" if none.
std::string missing_for(const Layer& layer, const std::set<BlockPart>& parts) {
    const Slots& slots = layer.slots;
    IndexedVector<SlotIndex, bool> there(slots.size());
    for (const SlotIndex i : slots.indices()) {
        const SlotRole role = slots[i].role;
        there[i] = role != SlotRole::saved && role != SlotRole::transient;
    }
    const auto part_of = [](const Step& step) {
        const auto* boundary = std::get_if<Boundary>(&step);
        return boundary != nullptr ? boundary->part : std::get<Operator>(step).part;
    };
    const auto outputs = [](const Step& step) {
        std::vector<SlotIndex> result;
        if (const auto* boundary = std::get_if<Boundary>(&step)) {
            result.push_back(boundary->out);
        } else {
            for (const SlotIndex slot : std::get<Operator>(step).out) result.push_back(slot);
        }
        return result;
    };
    for (const Step& step : layer.forward) {  // slots saved by the other parts
        if (parts.count(part_of(step)) != 0) continue;
        for (const SlotIndex slot : outputs(step)) {
            if (slot != kNoSlot && slots[slot].role == SlotRole::saved) there[slot] = true;
        }
    }
    for (const Step& step : layer.forward) {
        if (parts.count(part_of(step)) == 0) continue;
        std::vector<SlotIndex> inputs;
        if (const auto* boundary = std::get_if<Boundary>(&step)) {
            inputs.push_back(boundary->in);
        } else {
            for (const SlotIndex slot : std::get<Operator>(step).in) inputs.push_back(slot);
        }
        for (const SlotIndex slot : inputs) {
            if (slot != kNoSlot && !there[slot]) return slots[slot].name;
        }
        for (const SlotIndex slot : outputs(step)) {
            if (slot != kNoSlot) there[slot] = true;
        }
    }
    return "";
}

// Each part with saved slots can be recomputed from what the other parts save.
TEST(Layers, PartsCanBeRecomputed) {
    for (const std::string& name : implementation_names()) {
        for (const ModelSpec& model : samples::families()) {
            for (const Cut& cut : {Cut{}, Cut{.tp = 2, .sequence_parallel = true}, Cut{.cp = 2},
                                   Cut{.cp = 2, .kind = ContextParallel::ulysses}}) {
                const Implementation implementation = load_implementation(name);
                if (!fits(model, implementation, cut)) continue;
                LayerContext context = samples::context(model, implementation, 64, 2, cut);
                context.dropout = 0.1;
                for (const LayerKind kind : samples::kinds_of(model)) {
                    if (kind == LayerKind::embedding || kind == LayerKind::head) continue;
                    const Layer layer = build_layer(model, kind, context);
                    for (const BlockPart part : {BlockPart::norm, BlockPart::attention_projection,
                                                 BlockPart::attention_core, BlockPart::mlp_in, BlockPart::activation,
                                                 BlockPart::router, BlockPart::experts, BlockPart::shared_expert}) {
                        std::set<BlockPart> parts{part};
                        // Both read the same gathered input, so they can only be recomputed together.
                        if (model.shared_input_norm && part == BlockPart::mlp_in) {
                            parts.insert(BlockPart::attention_projection);
                        }
                        EXPECT_EQ(missing_for(layer, parts), "")
                            << name << " " << model.name << " " << name_of(kind) << " " << name_of(part) << " tp "
                            << cut.tp << " cp " << cut.cp;
                    }
                }
            }
        }
    }
}

struct BadCut {
    const char* family;
    Cut cut;
    std::int64_t sequence;
    const char* key;
};
class RefusedCuts : public testing::TestWithParam<BadCut> {};
TEST_P(RefusedCuts, NameTheKey) {
    const BadCut& bad = GetParam();
    for (const ModelSpec& model : samples::families()) {
        if (model.name != bad.family) continue;
        const LayerContext context = samples::context(model, load_implementation("orrery"), bad.sequence, 1, bad.cut);
        const LayerKind kind = model.has_experts() ? LayerKind::expert_block : LayerKind::block;
        const std::string message = message_of<InputError>([&] { (void)build_layer(model, kind, context); });
        EXPECT_NE(message.find(bad.key), std::string::npos) << message;
        return;
    }
    FAIL() << "no family " << bad.family;
}
INSTANTIATE_TEST_SUITE_P(
    All, RefusedCuts,
    testing::Values(BadCut{"gpt", {.tp = 3}, 128, "heads"}, BadCut{"gpt", {.tp = 16}, 128, "heads"},
                    BadCut{"gpt", {}, 2048, "sequence_length"},
                    BadCut{"gpt", {.tp = 8, .sequence_parallel = true}, 100, "sequence_length"},
                    BadCut{"gpt", {.cp = 4}, 100, "sequence_length"},
                    BadCut{"bert", {.cp = 8, .kind = ContextParallel::all_gather}, 100, "sequence_length"},
                    BadCut{"gpt", {.tp = 4, .cp = 4, .kind = ContextParallel::ulysses}, 128, "heads"},
                    BadCut{"window", {.cp = 2}, 128, "context_parallel"},
                    BadCut{"mixtral", {.tp = 2}, 128, "sequence_parallel"},
                    BadCut{"mixtral", {.ep = 3}, 128, "moe/expert_count"},
                    BadCut{"mixtral", {.ep = 2, .etp = 5}, 128, "moe/expert_ffn_hidden"}));

TEST(Layers, RefuseExpertsOfADenseModel) {
    const ModelSpec model = load_model("tiny-llama");
    const LayerContext context = samples::context(model, load_implementation("orrery"), 32, 1);
    EXPECT_THROW((void)build_layer(model, LayerKind::expert_block, context), InputError);
}

}  // namespace
}  // namespace orrery::models
