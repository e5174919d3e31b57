#include "exec/weights.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "core/random.h"

namespace orrery::exec {

ShardPlace place_of(const program::Program& program, std::int64_t rank) {
    const program::MeshCoordinates coordinates = program.coordinates(rank);
    ShardPlace place{
        .tp = coordinates.tp, .kv_copies = program.mesh->group_size(program::GroupAxis::kv), .pp = coordinates.pp};
    if (!program.plan->model.has_experts()) return place;
    const program::ExpertCoordinates at = program.mesh->expert_coordinates(rank);
    place.ep = at.ep;
    place.etp = at.etp;
    place.etp_ranks = program.plan->parallelism.etp;
    return place;
}

std::int64_t vocabulary_index(const program::Program& program, std::int64_t rank) {
    const bool over_stages = program.plan->parallelism.vocabulary_parallel != program::VocabularyParallel::none;
    const program::MeshCoordinates at = program.coordinates(rank);
    return over_stages ? at.pp : at.tp;
}

void for_each_local_row(const models::SlotDecl& slot, const ShardPlace& place,
                        const std::function<void(const ShardRow&)>& visit) {
    using models::ShardDim;
    ORRERY_CHECK(slot.role == models::SlotRole::parameter || slot.role == models::SlotRole::gradient,
                 slot.name + " is neither a parameter nor a gradient");
    const std::int64_t blocks = slot.expert ? slot.shape.front() : 1;  // local experts: blocks of each part
    const bool copied = slot.gradient_sum == models::GradientSum::kv_group;
    const std::int64_t shard = slot.expert        ? place.etp
                               : slot.over_stages ? place.pp
                               : copied           ? place.tp / place.kv_copies
                                                  : place.tp;  // index of the shard of each block
    ShardRow at;
    for (std::int64_t block = 0; block < blocks; ++block) {
        for (const models::ParameterPart& part : slot.parts) {
            at.part = &part;
            at.local_cols = part.local_cols;
            at.global_col = slot.shard == ShardDim::cols ? shard * part.local_cols : 0;
            const std::int64_t rows = part.local_rows / blocks;
            std::int64_t first_row = slot.shard == ShardDim::rows ? shard * rows : 0;
            if (slot.expert) {
                const std::int64_t whole = slot.shard == ShardDim::rows ? rows * place.etp_ranks : rows;
                first_row += (place.ep * blocks + block) * whole;
            }
            const std::int64_t cols = std::clamp<std::int64_t>(part.global_cols - at.global_col, 0, part.local_cols);
            for (std::int64_t row = 0; row < rows; ++row) {
                const bool real = first_row + row < part.global_rows;
                at.global_row = real ? first_row + row : -1;
                at.valid_cols = real ? cols : 0;
                at.global_offset = real ? at.global_row * part.global_cols + at.global_col : 0;
                visit(at);
                at.local_offset += part.local_cols;
            }
        }
    }
    ORRERY_CHECK(at.local_offset == slot.elements(), slot.name + ": the parts do not make up the slot");
}

std::string layer_prefix(const std::string& parameter_name, const models::SlotDecl& slot) {
    ORRERY_CHECK(parameter_name.ends_with(slot.name), parameter_name + " is not a parameter of slot " + slot.name);
    return parameter_name.substr(0, parameter_name.size() - slot.name.size());
}

void for_each_initial_row(const models::SlotDecl& slot, const std::string& prefix, const ShardPlace& place,
                          std::uint64_t seed, std::int64_t first, std::int64_t count,
                          const std::function<void(std::int64_t, std::span<const float>)>& visit) {
    ORRERY_CHECK(first >= 0 && count >= 0 && first + count <= slot.elements(),
                 slot.name + ": element range out of bounds");
    const double root_three = std::sqrt(3.0);
    const models::ParameterPart* part = nullptr;
    RandomStream stream(seed, "");
    std::vector<float> values;
    for_each_local_row(slot, place, [&](const ShardRow& row) {
        const std::int64_t begin = std::max(row.local_offset, first);
        const std::int64_t end = std::min(row.local_offset + row.local_cols, first + count);
        if (begin >= end) return;
        if (row.part != part) {
            part = row.part;
            stream = RandomStream(seed, prefix + part->name);
        }
        values.clear();
        for (std::int64_t i = begin - row.local_offset; i < end - row.local_offset; ++i) {
            if (i >= row.valid_cols || slot.init == models::InitKind::zeros) {
                values.push_back(0.0F);
            } else if (slot.init == models::InitKind::ones) {
                values.push_back(1.0F);
            } else {
                const double uniform = stream.uniform(static_cast<std::uint64_t>(row.global_offset + i));
                values.push_back(static_cast<float>((2.0 * uniform - 1.0) * root_three * slot.init_std));
            }
        }
        visit(begin - first, values);
    });
}

void fill_parameter(const models::SlotDecl& slot, const std::string& prefix, const ShardPlace& place,
                    std::uint64_t seed, std::span<float> values) {
    ORRERY_CHECK(static_cast<std::int64_t>(values.size()) == slot.elements(), slot.name + ": wrong number of elements");
    for_each_initial_row(
        slot, prefix, place, seed, 0, slot.elements(),
        [&](std::int64_t at, std::span<const float> row) { std::copy(row.begin(), row.end(), values.begin() + at); });
}

}  // namespace orrery::exec
