#include "sim/program/layer_library.h"

#include <algorithm>
#include <numeric>

#include "sim/program/rank_layout.h"

namespace orrery::program {
namespace {

using models::LayerKind;

/// The parts of a block that a selective recomputation repeats.
std::array<bool, models::kBlockParts> selected_parts(const MemorySavings& memory) {
    std::array<bool, models::kBlockParts> parts{};
    if (memory.recompute != Recompute::selective) return parts;
    for (int part = 0; part < models::kBlockParts; ++part) {
        const auto name = models::name_of(static_cast<models::BlockPart>(part));
        parts[static_cast<std::size_t>(part)] =
            std::ranges::find(memory.recompute_parts, name) != memory.recompute_parts.end();
    }
    if (memory.recompute_parts.empty()) parts[static_cast<std::size_t>(models::BlockPart::attention_core)] = true;
    return parts;
}

/// The plan's implementation with only those fusions that the plan has a use for: on CPU cores the parts of a fused
/// operator run one after the other, and a recomputed part cannot be fused with one that is kept.
models::Implementation implementation_of(const Plan& plan) {
    models::Implementation result = plan.implementation;
    models::KernelChoices& kernels = result.kernels;
    const auto parts = selected_parts(plan.training.memory);
    const auto are_alike = [&](models::BlockPart a, models::BlockPart b) {
        return parts[static_cast<std::size_t>(a)] == parts[static_cast<std::size_t>(b)];
    };
    const bool fuses = !plan.cluster.device.host_runs_compute;
    kernels.fused_residual_norm =
        kernels.fused_residual_norm && fuses && are_alike(models::BlockPart::residual, models::BlockPart::norm);
    kernels.gelu_epilogue =
        kernels.gelu_epilogue && fuses && are_alike(models::BlockPart::mlp_in, models::BlockPart::activation);
    kernels.online_softmax = kernels.online_softmax && fuses;
    return result;
}

models::LayerContext context_of(const Plan& plan, DType gradient_dtype) {
    const Parallelism& p = plan.parallelism;
    const Precision& precision = plan.training.precision;
    return {.sequence = plan.training.sequence_length,
            .micro_batch = plan.training.micro_batch_size,
            .tp_degree = p.tp,
            .sequence_parallel = p.sequence_parallel,
            .cp_degree = p.cp,
            .context_parallel = p.context_parallel,
            .ep_degree = p.ep,
            .etp_degree = p.etp,
            .expert_load = plan.training.expert_load,
            .padded_vocab = models::padded_vocabulary(plan.model, plan.implementation.vocab_multiple, p.tp),
            .parameter_dtype = precision.parameter,
            .activation_dtype = precision.activation,
            .gradient_dtype = gradient_dtype,
            .compute_dtype = precision.compute,
            .fp8 = precision.fp8,
            .dropout = plan.training.dropout,
            .tied_to_embedding = plan.model.tied_embeddings && p.ends_meet(),
            .implementation = implementation_of(plan)};
}

LayerOptions layer_options(const Plan& plan, const LayerOptions& common, LayerKind kind, bool recomputed) {
    const MemorySavings& memory = plan.training.memory;
    LayerOptions options = common;
    options.splits_backward = row_of(plan.parallelism.schedule).splits_backward();
    options.stops_early = plan.implementation.recompute_stops_early;
    options.tp = plan.parallelism.tp;
    if (!recomputed || !is_block(kind)) return options;
    options.recompute = memory.recompute;
    options.shards_checkpoint = memory.shards_checkpoints && memory.recompute == Recompute::full;
    options.parts = selected_parts(memory);
    return options;
}

}  // namespace

LayerLibrary::LayerLibrary(const Plan& plan, const ShardingRules& rules, LayerCache* cache)
    : plan_(plan), cache_(cache), context_(context_of(plan, rules.gradient_dtype)) {
    common_.overwrites_gradients = rules.reduces_units;
    common_.adds_to_tied_gradient = ties_locally();
    if (!rules.shards_states) return;
    const models::DataParallelChoices& choices = plan.implementation.data_parallel;
    const auto part = [&](std::int64_t shards) {
        return FlatPadding::Part{shards > 1 ? std::lcm(shards, choices.shard_alignment_elements) : 1, shards};
    };
    common_.padding = {.dense = part(rules.dense.shards),
                       .expert = part(rules.expert.shards),
                       .each_parameter = choices.pads_each_parameter && rules.has_units(),
                       .keeps_tied_apart = plan.model.tied_embeddings && !ties_locally()};
}

const LoweredLayer& LayerLibrary::layer(LayerKind kind, bool recomputed) {
    const LayerOptions options = layer_options(plan_, common_, kind, recomputed);
    if (cache_ != nullptr) {
        if (const LoweredLayer* const known = cache_->layer(plan_.model, kind, context_, options)) return *known;
    }
    for (const LoweredLayer& known : layers_) {
        if (known.kind == kind && known.options == options) return known;
    }
    return layers_.emplace_back(lower_layer(models::build_layer(plan_.model, kind, context_), options));
}

const LoweredLayer& LayerLibrary::vocabulary(VocabularyPart part, bool root) {
    const auto [known, fresh] = vocabulary_layers_.try_emplace({part, root});
    if (!fresh) return known->second;
    LayerOptions options = common_;
    options.leaves_communication_open =
        part != VocabularyPart::final_norm && plan_.parallelism.vocabulary_parallel != VocabularyParallel::interlaced;
    return known->second = lower_layer(vocabulary_layer(plan_, context_, part, root), options);
}

bool LayerLibrary::ties_locally() const {
    return plan_.parallelism.spreads_vocabulary() ? plan_.model.tied_embeddings : context_.tied_to_embedding;
}

}  // namespace orrery::program
