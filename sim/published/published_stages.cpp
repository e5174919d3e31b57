// The blocks of each pipeline stage. Each framework has its own partitioning rule.
#include <algorithm>
#include <numeric>

#include "sim/published/translation.h"

namespace orrery::published {
namespace {

using models::ModelSpec;
using Stages = std::vector<std::int64_t>;

/// DeepSpeed's partition_balanced over items of weight 1: the smallest possible largest part, filled from the front;
/// the last stage gets the remainder (78 blocks on 12 stages: eleven times 7, then 1). `ends`: the embedding and the
/// head count as one item each ("type:transformer|embedding").
Stages deepspeed_stages(std::int64_t layers, std::int64_t stages, bool ends) {
    const std::int64_t items = layers + (ends ? 2 : 0);
    const std::int64_t largest = (items + stages - 1) / stages;
    Stages result(static_cast<std::size_t>(stages), largest);
    result.back() = items - largest * (stages - 1);
    if (ends) {
        --result.front();
        --result.back();
    }
    if (result.back() < 0) {
        throw NotExpressible(std::to_string(layers) + " layers on " + std::to_string(stages) +
                             " stages leave DeepSpeed's last stage without any");
    }
    return result;
}

/// nanotron's build_model: a rank takes blocks until the cumulative cost exceeds its share of the total, including the
/// block that exceeds it. Costs as in nanotron's Llama: 4 a d h + 3 f h per block, V h for the head. If the sum equals
/// the share exactly (16 blocks and a head worth 4 on 2 or 4 ranks) the code would add another block, but the measured
/// pipelines have equal stages: a micro-batch takes 1/2 and 1/4 of its time on one rank.
Stages nanotron_stages(const ModelSpec& model, std::int64_t stages) {
    const auto h = static_cast<double>(model.hidden);
    const double block = (4 * static_cast<double>(model.q_width()) + 3 * static_cast<double>(model.ffn_hidden)) * h;
    const double total = static_cast<double>(model.layers) * block + static_cast<double>(model.vocab) * h;
    Stages result(static_cast<std::size_t>(stages), 0);
    std::size_t stage = 0;
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
        ++result[stage];
        const double sum = static_cast<double>(layer + 1) * block;
        const double share = total * static_cast<double>(stage + 1) / static_cast<double>(stages);
        if (stage + 1 < result.size() && sum >= share) ++stage;
    }
    // With a large vocabulary nanotron has stages with only the head or the loss. Here the head is on the last stage,
    // and every stage before it holds at least one block, taken from the nearest earlier stage with more than one.
    for (std::size_t empty = stage; empty + 1 < result.size(); ++empty) {
        if (result[empty] != 0) continue;
        std::size_t giver = empty;
        while (giver > 0 && result[giver] < 2) --giver;
        if (result[giver] < 2) {
            throw NotExpressible(std::to_string(model.layers) + " layers on " + std::to_string(stages) +
                                 " stages leave ranks without any");
        }
        --result[giver];
        ++result[empty];
    }
    return result;
}

/// The last stage as stated, the others as even as possible; later ones take the remainder.
Stages with_last_stage(std::int64_t layers, std::int64_t stages, std::int64_t last) {
    if (stages < 2) return {layers};
    const std::int64_t others = stages - 1, rest = layers - last;
    Stages result(static_cast<std::size_t>(others), rest / others);
    for (std::int64_t i = 0; i < rest % others; ++i) ++result[static_cast<std::size_t>(others - 1 - i)];
    result.push_back(last);
    return result;
}

/// First and last stage with one block fewer than the others, if that divides evenly.
std::optional<Stages> fewer_at_the_ends(std::int64_t layers, std::int64_t stages) {
    if (stages < 2 || (layers + 2) % stages != 0) return {};
    Stages result(static_cast<std::size_t>(stages), (layers + 2) / stages);
    --result.front();
    --result.back();
    return result;
}

}  // namespace

Stages stage_layers_of(const PublishedRun& run, const ModelSpec& model, const models::Implementation& implementation,
                       const program::Parallelism& parallelism, Assumptions& assumptions) {
    const std::int64_t layers = model.layers, stages = parallelism.virtual_stages();
    const auto assume = [&](const std::string& value, const std::string& why) {
        assumptions.add("/parallelism/stage_layers", "layers of each stage", value, why);
    };
    if (parallelism.pp == 1) return {layers};
    if (run.parallel.last_stage_layers) {
        if (stages == parallelism.pp) {
            if (layers % stages != 0 || *run.parallel.last_stage_layers != layers / stages) {
                assume("the last as stated, the others as even as possible", "only the last stage is stated");
            }
            return with_last_stage(layers, stages, *run.parallel.last_stage_layers);
        }
        throw NotExpressible("layers_last_stage with several chunks per rank is not supported");
    }
    if (contains(run.notes, "one transformer layer FEWER") || contains(run.notes, "one layer fewer")) {
        if (std::optional<Stages> found = fewer_at_the_ends(layers, stages)) return *found;
    }
    if (is_kind_of(implementation, "megatron-deepspeed")) {
        const bool ends = contains(run.parallel.partition + run.notes, "type:transformer|embedding");
        if (layers % stages == 0 && !ends) return program::even_stages(layers, stages);
        assume("the smallest possible largest stage, filled from the front", "DeepSpeed's balanced partition");
        return deepspeed_stages(layers, stages, ends);
    }
    if (is_kind_of(implementation, "nanotron")) {
        assume("by cumulative cost, including the head", "nanotron's build_model");
        return nanotron_stages(model, stages);
    }
    if (layers % stages == 0) return program::even_stages(layers, stages);
    // Megatron-Core's account_for_embedding_in_pipeline_split and account_for_loss_in_pipeline_split.
    if (is_kind_of(implementation, "nemo") || is_kind_of(implementation, "megatron-core")) {
        if (std::optional<Stages> found = fewer_at_the_ends(layers, stages)) {
            assume("one fewer on the first and the last", "embedding and head count as a layer each; not stated");
            return *found;
        }
        if (layers >= stages) {  // a custom layout (pipeline_model_parallel_layout)
            assume("as even as possible, earlier stages take the remainder", "the layout is not stated");
            return program::even_stages(layers, stages);
        }
    }
    // AA-Scaling published such layouts, though Megatron-LM refuses them.
    if (contains(run.framework, "AA-Scaling")) {
        assume("as even as possible, earlier stages take the remainder", "not stated");
        return program::even_stages(layers, stages);
    }
    if (layers < stages) {
        throw NotExpressible(std::to_string(layers) + " layers on " + std::to_string(stages) + " stages");
    }
    throw NotExpressible(std::to_string(layers) + " layers do not divide into " + std::to_string(stages) +
                         " stages, as " + implementation.name + " requires");
}

}  // namespace orrery::published
