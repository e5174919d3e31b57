#include "sim/program/mesh.h"

#include <iterator>
#include <numeric>
#include <set>
#include <utility>

#include "core/enum_names.h"
#include "core/error.h"

namespace orrery::program {
namespace {

/// The stride of each axis of the dense or the expert mesh; the first axis of the order has stride 1. `ep` has extent 1
/// in the dense mesh, `cp` in the expert mesh.
EnumArray<MeshAxis, std::int64_t, kMeshAxes> strides(const Parallelism& p, bool expert) {
    using Numbers = EnumArray<MeshAxis, std::int64_t, kMeshAxes>;
    const Numbers extents = expert ? Numbers{{{p.etp, 1, p.ep, p.expert_dp(), p.pp}}}  // tp, cp, ep, dp, pp
                                   : Numbers{{{p.tp, p.cp, 1, p.dp, p.pp}}};
    Numbers result{};
    std::int64_t stride = 1;
    for (const MeshAxis axis : p.order) {
        result[axis] = stride;
        stride *= extents[axis];
    }
    return result;
}

}  // namespace

std::string_view name_of(GroupAxis axis) {
    static constexpr auto kNames = name_table<GroupAxis::up_backward>(
        {"tp", "kv", "cp", "ep", "etp", "dp", "dp_shard", "dp_replicate", "edp", "embedding", "pipeline", "model",
         "world", "pp_forward", "pp_backward", "pp_up_forward", "pp_up_backward"});
    return kNames[axis];
}

std::string mesh_problem(const Parallelism& p) {
    if (std::set<MeshAxis>(p.order.begin(), p.order.end()).size() < kMeshAxes) return "an axis occurs twice";
    if (p.tp * p.cp * p.dp % (p.ep * p.etp) != 0) {
        return "ep * etp = " + std::to_string(p.ep * p.etp) +
               " must divide tp * cp * dp = " + std::to_string(p.tp * p.cp * p.dp);
    }
    if (p.pp > 1 && strides(p, false)[MeshAxis::pp] != strides(p, true)[MeshAxis::pp]) {
        return "the dense and the expert mesh would put a pipeline stage on different ranks; put pp last, or dp, cp "
               "and ep on one side of it";
    }
    return "";
}

Mesh::Mesh(const Plan& plan) : parallelism_(plan.parallelism), world_size_(plan.parallelism.world_size()) {
    const Parallelism& p = parallelism_;
    const auto dense = strides(p, false), expert = strides(p, true);
    tp_ = {p.tp, dense[MeshAxis::tp]};
    cp_ = {p.cp, dense[MeshAxis::cp]};
    dp_ = {p.dp, dense[MeshAxis::dp]};
    pp_ = {p.pp, dense[MeshAxis::pp]};
    etp_ = {p.etp, expert[MeshAxis::tp]};
    ep_ = {p.ep, expert[MeshAxis::ep]};
    edp_ = {p.expert_dp(), expert[MeshAxis::dp]};
    mirrored_ = p.model_copies() > 1;
    wraps_ = p.chunks > 1 && !p.ends_meet();
    ties_across_ranks_ = plan.model.tied_embeddings && p.pp > 1 && !p.ends_meet();
    const bool copies_kv = p.tp > plan.model.kv_heads && plan.model.kv_heads > 0 && !plan.model.has_latent_attention();

    boxes_[GroupAxis::tp] = {tp_};
    boxes_[GroupAxis::kv] = {Digit{copies_kv ? p.tp / plan.model.kv_heads : 1, tp_.stride}};
    boxes_[GroupAxis::cp] = {cp_};
    boxes_[GroupAxis::ep] = {ep_};
    boxes_[GroupAxis::etp] = {etp_};
    // cp varies fastest, so that ranks with neighbouring parts of the sequence are neighbours in the group.
    boxes_[GroupAxis::dp] = {cp_, dp_};
    boxes_[GroupAxis::edp] = {edp_};
    boxes_[GroupAxis::pipeline] = {pp_};
    boxes_[GroupAxis::model] = {tp_, pp_};
    for (const GroupAxis axis : kAxes) {
        sizes_[axis] = boxes_[axis].empty() ? 0 : is_mirrored(axis) ? 2 : 1;
        for (const Digit& digit : boxes_[axis]) sizes_[axis] *= digit.extent;
        if (is_pair(axis) && p.pp > 1) sizes_[axis] = 2;
    }
    if (!plan.model.has_experts()) sizes_[GroupAxis::edp] = 0;
    sizes_[GroupAxis::dp_shard] = p.shard_ranks();
    sizes_[GroupAxis::dp_replicate] = p.gradient_ranks() / p.shard_ranks();
    sizes_[GroupAxis::embedding] = ties_across_ranks_ ? 2 : 0;
    sizes_[GroupAxis::world] = world_size_;
}

MeshCoordinates Mesh::coordinates(std::int64_t rank) const {
    ORRERY_CHECK(rank >= 0 && rank < world_size_,
                 "rank " + std::to_string(rank) + " is outside the world of " + std::to_string(world_size_) + " ranks");
    return {.tp = tp_.of(rank), .cp = cp_.of(rank), .dp = dp_.of(rank), .pp = pp_.of(rank)};
}

ExpertCoordinates Mesh::expert_coordinates(std::int64_t rank) const {
    ORRERY_CHECK(rank >= 0 && rank < world_size_, "rank " + std::to_string(rank) + " is outside the world");
    return {.etp = etp_.of(rank), .ep = ep_.of(rank), .edp = edp_.of(rank), .pp = pp_.of(rank)};
}

std::int64_t Mesh::rank_at(MeshCoordinates at) const {
    const auto inside = [](std::int64_t value, const Digit& digit) { return value >= 0 && value < digit.extent; };
    ORRERY_CHECK(inside(at.tp, tp_) && inside(at.cp, cp_) && inside(at.dp, dp_) && inside(at.pp, pp_),
                 "no rank at tp " + std::to_string(at.tp) + ", cp " + std::to_string(at.cp) + ", dp " +
                     std::to_string(at.dp) + ", pp " + std::to_string(at.pp));
    return at.tp * tp_.stride + at.cp * cp_.stride + at.dp * dp_.stride + at.pp * pp_.stride;
}

/// The ranks that differ from `rank` in these digits only; the first digit varies fastest.
std::vector<std::int64_t> Mesh::box(std::int64_t rank, const std::vector<Digit>& digits) const {
    std::int64_t first = rank, count = 1;
    for (const Digit& digit : digits) {
        first -= digit.of(rank) * digit.stride;
        count *= digit.extent;
    }
    std::vector<std::int64_t> members;
    members.reserve(static_cast<std::size_t>(count));
    members.push_back(first);
    for (const Digit& digit : digits) {
        const std::size_t before = members.size();
        for (std::int64_t i = 1; i < digit.extent; ++i) {
            for (std::size_t m = 0; m < before; ++m) members.push_back(members[m] + i * digit.stride);
        }
    }
    return members;
}

/// The members and the ranks that hold the same stages of the other copy of the model, those of the first stage first.
std::vector<std::int64_t> Mesh::with_mirror(std::vector<std::int64_t> members, std::int64_t rank) const {
    const std::int64_t shift = (pp_.extent - 1 - 2 * pp_.of(rank)) * pp_.stride;
    std::vector<std::int64_t> mirror = members;
    for (std::int64_t& member : mirror) member += shift;
    if (shift < 0) std::swap(members, mirror);
    members.insert(members.end(), mirror.begin(), mirror.end());
    return members;
}

std::vector<std::int64_t> Mesh::pair_of(GroupAxis axis, std::int64_t rank) const {
    if (parallelism_.pp < 2) return {};
    const bool towards_last = axis == GroupAxis::down_forward || axis == GroupAxis::up_backward;
    const bool up = axis == GroupAxis::up_forward || axis == GroupAxis::up_backward;
    const std::int64_t here = pp_.of(rank);
    std::int64_t there = here + (towards_last ? 1 : -1);
    if (there < 0 || there >= pp_.extent) {
        if (!wraps_ || up) return {};
        there = (there + pp_.extent) % pp_.extent;
    }
    return {rank, rank + (there - here) * pp_.stride};
}

std::vector<std::int64_t> Mesh::group_of(GroupAxis axis, std::int64_t rank) const {
    ORRERY_CHECK(rank >= 0 && rank < world_size_, "rank " + std::to_string(rank) + " is outside the world");
    if (!boxes_[axis].empty()) {
        std::vector<std::int64_t> members = box(rank, boxes_[axis]);
        return is_mirrored(axis) ? with_mirror(std::move(members), rank) : members;
    }
    switch (axis) {
        case GroupAxis::dp_shard:
        case GroupAxis::dp_replicate: {
            // The dp group is cut into consecutive runs of `shard` ranks; replicas have the same position in each run.
            const std::int64_t shard = parallelism_.shard_ranks(), own = cp_.of(rank) + cp_.extent * dp_.of(rank);
            const std::int64_t first = rank - cp_.of(rank) * cp_.stride - dp_.of(rank) * dp_.stride;
            const bool sharded = axis == GroupAxis::dp_shard;
            const std::int64_t begin = sharded ? own / shard * shard : own % shard;
            const std::int64_t end = sharded ? begin + shard : cp_.extent * dp_.extent;
            std::vector<std::int64_t> members;
            members.reserve(static_cast<std::size_t>(sizes_[axis]));
            for (std::int64_t i = begin; i < end; i += sharded ? 1 : shard) {
                members.push_back(first + i % cp_.extent * cp_.stride + i / cp_.extent * dp_.stride);
            }
            return members;
        }
        case GroupAxis::embedding: {
            const std::int64_t here = pp_.of(rank), last = pp_.extent - 1;
            if (!ties_across_ranks_ || (here != 0 && here != last)) return {};
            const std::int64_t first = rank - here * pp_.stride;
            return {first, first + last * pp_.stride};
        }
        case GroupAxis::world: {
            std::vector<std::int64_t> everyone(static_cast<std::size_t>(world_size_));
            std::iota(everyone.begin(), everyone.end(), std::int64_t{0});
            return everyone;
        }
        default:
            return pair_of(axis, rank);
    }
}

}  // namespace orrery::program
