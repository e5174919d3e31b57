#include "exec/shards.h"

#include <algorithm>

#include "core/error.h"

namespace orrery::exec {

using program::GroupAxis;
using program::Parameter;
using program::ParameterRange;

Shards::Shards(const program::Program& program, std::int64_t rank)
    : program_(program), class_(program.classes[static_cast<std::size_t>(program.class_of(rank))]), rank_(rank) {
    if (class_.shard_elements == 0) {
        pieces_ = {{0, 0, class_.optimizer_elements}};
        return;
    }
    const std::int64_t dense =
        place_in(program.plan->parallelism.has_shard_sets() ? GroupAxis::dp_shard : GroupAxis::dp);
    const std::int64_t expert = place_in(GroupAxis::edp);
    for (const program::Bucket& bucket : class_.buckets) {
        const bool whole = bucket.shard_elements == bucket.elements;  // no other rank has a part of it
        const std::int64_t place = whole ? 0 : bucket.range == ParameterRange::expert ? expert : dense;
        pieces_.push_back({bucket.offset + place * bucket.shard_elements, bucket.shard_offset, bucket.shard_elements});
    }
}

std::int64_t Shards::place_in(GroupAxis axis) const {
    const std::vector<std::int64_t> members = program_.group_of(axis, rank_);
    const auto found = std::find(members.begin(), members.end(), rank_);
    return found == members.end() ? 0 : found - members.begin();
}

std::int64_t Shards::flat(std::int64_t shard_offset) const {
    // By where they lie in the shard buffers, which is the order of the buckets.
    const auto after =
        std::upper_bound(pieces_.begin(), pieces_.end(), shard_offset,
                         [](std::int64_t offset, const ShardPiece& piece) { return offset < piece.shard; });
    ORRERY_CHECK(after != pieces_.begin(), "a shard that lies before all of them");
    const ShardPiece& piece = *std::prev(after);
    ORRERY_CHECK(shard_offset < piece.shard + std::max<std::int64_t>(1, piece.elements), "a shard behind all of them");
    return piece.flat + shard_offset - piece.shard;
}

/// Of the ranks that hold a copy of the parameter's elements and add up their norms, whether this is the first.
bool Shards::counts(const Parameter& parameter) const {
    const program::Plan& plan = *program_.plan;
    const program::MeshCoordinates at = program_.coordinates(rank_);
    const program::ExpertCoordinates expert_at = program_.mesh->expert_coordinates(rank_);
    const bool expert = parameter.range == ParameterRange::expert;
    const std::int64_t cut_index = expert ? expert_at.etp : at.tp;
    if (parameter.decl.shard == models::ShardDim::replicated && cut_index > 0) return false;
    if (parameter.decl.gradient_sum == models::GradientSum::kv_group && place_in(GroupAxis::kv) > 0) return false;
    // The last stage's copy of a tied embedding.
    const bool copy =
        plan.model.tied_embeddings && parameter.layer == plan.model.layers && parameter.name == program::kTiedWeight;
    if (copy) return false;
    const bool everyone = plan.parallelism.ep > 1;  // otherwise the norm is of the ranks of one copy of the model
    if (class_.shard_elements > 0)
        return expert || !plan.parallelism.has_shard_sets() || place_in(GroupAxis::dp_replicate) == 0;
    const program::Chunk& chunk = class_.chunks[static_cast<std::size_t>(parameter.chunk)];
    if (chunk.direction > 0) return false;  // dualpipe's second copy of the model
    return !everyone || place_in(expert ? GroupAxis::edp : GroupAxis::dp) == 0;
}

std::vector<UpdateRange> Shards::update_ranges() const {
    const bool shards = class_.shard_elements > 0;
    std::vector<Parameter> parameters = class_.parameters;
    std::sort(parameters.begin(), parameters.end(),
              [](const Parameter& a, const Parameter& b) { return a.offset < b.offset; });
    std::vector<UpdateRange> ranges;
    for (const ShardPiece& piece : pieces_) {
        auto parameter = std::partition_point(parameters.begin(), parameters.end(), [&](const Parameter& one) {
            return one.offset + one.elements <= piece.flat;
        });
        for (; parameter != parameters.end() && parameter->offset < piece.flat + piece.elements; ++parameter) {
            const std::int64_t begin = std::max(parameter->offset, piece.flat);
            const std::int64_t end = std::min(parameter->offset + parameter->elements, piece.flat + piece.elements);
            const std::int64_t shard = piece.shard + begin - piece.flat;
            const bool decays = parameter->decl.weight_decay, counted = counts(*parameter);
            const UpdateRange range{.parameter = shards && !class_.parameter_shards_alias ? shard : begin,
                                    .gradient = shards && !class_.gradient_shards_alias ? shard : begin,
                                    .state = shards ? shard : begin,
                                    .elements = end - begin,
                                    .decays = decays,
                                    .counted = counted};
            const bool joins = !ranges.empty() && ranges.back().decays == decays && ranges.back().counted == counted &&
                               ranges.back().parameter + ranges.back().elements == range.parameter &&
                               ranges.back().gradient + ranges.back().elements == range.gradient &&
                               ranges.back().state + ranges.back().elements == range.state;
            if (joins) {
                ranges.back().elements += range.elements;
            } else {
                ranges.push_back(range);
            }
        }
    }
    return ranges;
}

}  // namespace orrery::exec
