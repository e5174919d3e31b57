#include "exec/shards.h"

#include <algorithm>

#include "core/error.h"

namespace orrery::exec {

using program::GroupAxis;
using program::Parameter;
using program::ParameterRange;

namespace {

/// Whether the class's gradient norm is summed over all ranks. Otherwise it is summed over the ranks of one replica of
/// the model.
bool sums_over_everyone(const program::Program& program, const program::RankClass& rank_class) {
    for (const auto& segments : rank_class.segment_lists) {
        for (const program::Segment& segment : segments) {
            for (const auto& instruction : program.bodies[segment.body].instructions) {
                if (instruction.is_communication && instruction.communication.axis == GroupAxis::world) return true;
            }
        }
    }
    return false;
}

}  // namespace

Shards::Shards(const program::Program& program, std::int64_t rank)
    : program_(program),
      class_(program.classes[program.class_of(rank)]),
      everyone_adds_up_(sums_over_everyone(program, class_)),
      rank_(rank) {
    if (class_.shard_elements == 0) {
        pieces_ = {{0, 0, class_.optimizer_elements}};
        return;
    }
    const std::int64_t dense =
        place_in(program.plan->parallelism.has_shard_sets() ? GroupAxis::dp_shard : GroupAxis::dp);
    const std::int64_t expert = place_in(GroupAxis::edp);
    for (const program::Bucket& bucket : class_.buckets) {
        const bool whole = bucket.shard_elements == bucket.elements;  // the bucket is not sharded
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
    // The pieces are in the order of the buckets, which is ascending in the shard buffers.
    const auto after =
        std::upper_bound(pieces_.begin(), pieces_.end(), shard_offset,
                         [](std::int64_t offset, const ShardPiece& piece) { return offset < piece.shard; });
    ORRERY_CHECK(after != pieces_.begin(), "an offset before the first shard");
    const ShardPiece& piece = *std::prev(after);
    ORRERY_CHECK(shard_offset < piece.shard + std::max<std::int64_t>(1, piece.elements), "an offset behind its shard");
    return piece.flat + shard_offset - piece.shard;
}

std::int64_t Shards::parameter_place(const ShardPiece& piece, std::int64_t flat) const {
    return class_.shard_elements > 0 && !class_.parameter_shards_alias ? piece.shard + flat - piece.flat : flat;
}

std::int64_t Shards::state_place(const ShardPiece& piece, std::int64_t flat) const {
    return class_.shard_elements > 0 ? piece.shard + flat - piece.flat : flat;
}

std::vector<ShardPiece> Shards::parts_of(const Parameter& parameter) const {
    std::vector<ShardPiece> parts;
    for (const ShardPiece& piece : pieces_) {
        const std::int64_t begin = std::max(piece.flat, parameter.offset);
        const std::int64_t end = std::min(piece.flat + piece.elements, parameter.offset + parameter.elements);
        if (begin < end) parts.push_back({begin, piece.shard + begin - piece.flat, end - begin});
    }
    return parts;
}

std::vector<ShardPiece> Shards::parameters_at_rest() const {
    if (class_.shard_elements > 0 && !class_.parameter_shards_alias) return pieces_;
    return {{0, 0, class_.parameter_elements}};
}

/// Whether this is the first of the ranks of one model replica that hold the parameter's elements.
bool Shards::is_first_of_model_copy(const Parameter& parameter) const {
    const program::Plan& plan = *program_.plan;
    const program::MeshCoordinates at = program_.coordinates(rank_);
    const program::ExpertCoordinates expert_at = program_.mesh->expert_coordinates(rank_);
    const std::int64_t cut_index = parameter.range == ParameterRange::expert ? expert_at.etp : at.tp;
    if (parameter.decl.shard == models::ShardDim::replicated && cut_index > 0) return false;
    if (parameter.decl.gradient_sum == models::GradientSum::kv_group && place_in(GroupAxis::kv) > 0) return false;
    // The last stage's copy of a tied embedding is not the first copy.
    return !plan.model.tied_embeddings || parameter.layer != plan.model.layers ||
           parameter.name != program::kTiedWeight;
}

bool Shards::is_first_copy(const Parameter& parameter) const {
    if (!is_first_of_model_copy(parameter)) return false;
    const bool expert = parameter.range == ParameterRange::expert;
    if (class_.shard_elements > 0)
        return expert || !program_.plan->parallelism.has_shard_sets() || place_in(GroupAxis::dp_replicate) == 0;
    const program::Chunk& chunk = class_.chunks[parameter.chunk];
    if (chunk.direction > 0) return false;  // DualPipe's second copy of the model
    const program::MeshCoordinates at = program_.coordinates(rank_);
    return expert ? program_.mesh->expert_coordinates(rank_).edp == 0 : at.dp == 0 && at.cp == 0;
}

/// Whether this is the first of the ranks that hold the parameter's elements and whose norms are added up.
bool Shards::counts(const Parameter& parameter) const {
    if (everyone_adds_up_) return is_first_copy(parameter);
    return is_first_of_model_copy(parameter) && class_.chunks[parameter.chunk].direction == 0;
}

std::vector<UpdateRange> Shards::update_ranges() const {
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
            const bool decays = parameter->decl.weight_decay, counted = counts(*parameter);
            const UpdateRange range{.parameter = parameter_place(piece, begin),
                                    .gradient = class_.gradient_shards_alias ? begin : state_place(piece, begin),
                                    .state = state_place(piece, begin),
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
