// AnalyticBounder's pipelines: what bounds need of a cut that does not depend on the micro-batch size.
#include <algorithm>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "core/index.h"
#include "sim/planner/analytic_bounds.h"
#include "sim/program/schedule.h"

namespace orrery::sim {

namespace {

using program::ChunkIndex;
using program::Recompute;

}  // namespace

/// The first and the last two ranks, and the first and the last of those with the most blocks and of those with the
/// most parameters: the others have the same costs and less in flight or a shorter ramp.
std::vector<std::size_t> AnalyticBounder::ranks_to_bound(const Pipeline& pipeline, const LayerCosts& costs) {
    const std::size_t count = pipeline.stages().size();
    std::vector<std::size_t> ranks{0, std::min<std::size_t>(1, count - 1), count - std::min<std::size_t>(2, count),
                                   count - 1};
    const auto add_fullest = [&](const auto& load_of) {
        std::vector<std::int64_t> load;  // of each rank
        for (const std::vector<std::size_t>& stages : pipeline.stages()) {
            load.push_back(0);
            for (const std::size_t stage : stages) load.back() += load_of(stage);
        }
        const auto most = std::max_element(load.begin(), load.end());
        const auto last_most = std::find(load.rbegin(), load.rend(), *most);
        ranks.push_back(static_cast<std::size_t>(most - load.begin()));
        ranks.push_back(count - 1 - static_cast<std::size_t>(last_most - load.rbegin()));
    };
    const auto ends = [&](std::size_t stage) {
        return std::pair(pipeline.first_block(stage), pipeline.first_block(stage + 1));
    };
    add_fullest([&](std::size_t stage) { return ends(stage).second - ends(stage).first; });
    add_fullest(
        [&](std::size_t stage) { return costs.parameters(at(ends(stage).first + 1), at(ends(stage).second + 1)); });
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return ranks;
}

/// Of each rank the position in Pipeline::ranks of itself, or of the one whose number of parameters is nearest.
std::vector<std::size_t> AnalyticBounder::alike_ranks(const Pipeline& pipeline, const LayerCosts& costs) {
    std::vector<std::int64_t> parameters;  // of the blocks of each rank
    for (const std::vector<std::size_t>& stages : pipeline.stages()) {
        parameters.push_back(0);
        for (const std::size_t stage : stages) {
            parameters.back() +=
                costs.parameters(at(pipeline.first_block(stage) + 1), at(pipeline.first_block(stage + 1) + 1));
        }
    }
    std::vector<std::size_t> like;
    for (std::size_t rank = 0; rank < parameters.size(); ++rank) {
        const auto distance = [&](std::size_t other) {  // the first rank reduces its gradients in its own way
            return std::tuple(std::abs(parameters[other] - parameters[rank]), other != rank, other == 0);
        };
        const auto nearest = std::min_element(pipeline.ranks.begin(), pipeline.ranks.end(),
                                              [&](std::size_t a, std::size_t b) { return distance(a) < distance(b); });
        like.push_back(static_cast<std::size_t>(nearest - pipeline.ranks.begin()));
    }
    return like;
}

RankElements AnalyticBounder::elements_of(const Pipeline& pipeline, std::size_t rank, const LayerCosts& costs) {
    RankElements elements{.is_first_stage = rank == 0};
    for (const std::size_t stage : pipeline.stages()[rank]) {
        std::int64_t of_blocks = 0, of_ends = 0;  // dense
        const std::int64_t begin = pipeline.first_block(stage) + 1, end = pipeline.first_block(stage + 1) + 1;
        costs.for_each(at(begin), at(end), [&](const LayerCost& block, std::int32_t count) {
            const std::int64_t all = block.dense_parameters + block.expert_parameters;
            of_blocks += count * block.dense_parameters;
            elements.expert += count * block.expert_parameters;
            elements.largest_block = std::max(elements.largest_block, all);
            elements.smallest_block = elements.smallest_block == 0 ? all : std::min(elements.smallest_block, all);
        });
        RankElements::EndChunk ends{.blocks = end - begin};
        if (pipeline.has_embedding(stage)) ends.embedding = costs.of_kind.front().dense_parameters;
        if (pipeline.has_head(stage)) ends.head = costs.of_kind.back().dense_parameters;
        if (ends.embedding + ends.head > 0) elements.end_chunks.push_back(ends);
        of_ends += ends.embedding + ends.head + pipeline.vocabulary_elements;
        elements.dense += of_blocks + of_ends;
        elements.dense_of_blocks += of_blocks;
        elements.largest_chunk = std::max(elements.largest_chunk, of_blocks + of_ends);
        elements.largest_ends = std::max(elements.largest_ends, of_ends);
        elements.add_chunk(end - begin);
    }
    return elements;
}

AnalyticBounder::Pipeline& AnalyticBounder::pipeline_of(const Choice& choice) {
    Choice key = choice;
    key.sharding = {};
    key.recompute = Recompute::none;
    key.recompute_parts = 0;
    key.recompute_layers = -1;
    key.offload_layers = 0;
    key.micro_batch = 1;
    const auto [pipeline, fresh] = pipelines_.add(key);
    if (!fresh) return pipeline;
    pipeline.layout = &layout_of(choice);
    if (choice.spreads_vocabulary()) {
        pipeline.spreads_vocabulary = true;
        const models::ModelSpec& model = request_.model;
        const std::int64_t rows =
            models::padded_vocabulary(model, request_.implementation.vocab_multiple, choice.pp) / choice.pp;
        pipeline.vocabulary_elements = rows * model.hidden * (model.tied_embeddings ? 1 : 2);
    }
    pipeline.places = &stages_of_ranks(choice);
    pipeline.ranks = ranks_to_bound(pipeline, base_costs(choice));
    return pipeline;
}

const std::vector<std::int64_t>& AnalyticBounder::layout_of(const Choice& choice) {
    const auto [entry, fresh] = layouts_.try_emplace({choice.schedule, choice.pp, choice.chunks, choice.ends});
    std::vector<std::int64_t>& first_blocks = entry->second;
    if (!fresh) return first_blocks;
    first_blocks.push_back(0);
    for (const std::int64_t blocks : stage_layers_of(request_, choice)) {
        first_blocks.push_back(first_blocks.back() + blocks);
    }
    return first_blocks;
}

const AnalyticBounder::StagesOfRanks& AnalyticBounder::stages_of_ranks(const Choice& choice) {
    const auto [entry, fresh] = stages_.try_emplace({choice.schedule, choice.pp, choice.chunks});
    if (!fresh) return entry->second;
    const program::ScheduleShape shape{
        .schedule = choice.schedule, .ranks = choice.pp, .chunks = choice.chunks, .micro_batches = 1};
    for (std::int64_t rank = 0; rank < choice.pp; ++rank) {
        std::vector<std::size_t>& stages = entry->second.emplace_back();
        for (const ChunkIndex c : IndexRange<ChunkIndex>(0, ChunkIndex::of(choice.chunks))) {
            stages.push_back(at(program::chunk_place(shape, rank, c).virtual_stage));
        }
    }
    return entry->second;
}

void AnalyticBounder::count_elements(const Choice& choice, Pipeline& pipeline) {
    if (!pipeline.elements.empty()) return;
    const LayerCosts& costs = base_costs(choice);
    pipeline.like = alike_ranks(pipeline, costs);
    for (const std::size_t rank : pipeline.ranks) pipeline.elements.push_back(elements_of(pipeline, rank, costs));
}

}  // namespace orrery::sim
