#include "sim/program/mesh.h"

#include <algorithm>
#include <utility>

#include "core/enum_names.h"
#include "core/error.h"

namespace orrery::program {
namespace {

/// The stride of each axis of the dense or the expert mesh; the first axis of the order has stride 1. `ep` has extent 1
/// in the dense mesh, `cp` in the expert mesh.
std::array<std::int64_t, kMeshAxes> strides(const Parallelism& p, bool expert) {
    const auto extent = [&](MeshAxis axis) -> std::int64_t {
        switch (axis) {
            case MeshAxis::tp:
                return expert ? p.etp : p.tp;
            case MeshAxis::cp:
                return expert ? 1 : p.cp;
            case MeshAxis::ep:
                return expert ? p.ep : 1;
            case MeshAxis::dp:
                return expert ? p.expert_dp() : p.dp;
            case MeshAxis::pp:
                return p.pp;
        }
        return 1;
    };
    std::array<std::int64_t, kMeshAxes> result{};
    std::int64_t stride = 1;
    for (const MeshAxis axis : p.order) {
        result[static_cast<std::size_t>(axis)] = stride;
        stride *= extent(axis);
    }
    return result;
}

std::int64_t stride_of(const std::array<std::int64_t, kMeshAxes>& all, MeshAxis axis) {
    return all[static_cast<std::size_t>(axis)];
}

}  // namespace

std::string_view name_of(GroupAxis axis) {
    static constexpr auto kNames = name_table<GroupAxis::up_backward>(
        {"tp", "kv", "cp", "ep", "etp", "dp", "dp_shard", "dp_replicate", "edp", "embedding", "pipeline", "model",
         "world", "pp_forward", "pp_backward", "pp_up_forward", "pp_up_backward"});
    return kNames[axis];
}

std::string mesh_problem(const Parallelism& p) {
    std::array<bool, kMeshAxes> seen{};
    for (const MeshAxis axis : p.order) {
        if (std::exchange(seen[static_cast<std::size_t>(axis)], true)) return "an axis occurs twice";
    }
    if (p.tp * p.cp * p.dp % (p.ep * p.etp) != 0) {
        return "ep * etp = " + std::to_string(p.ep * p.etp) +
               " must divide tp * cp * dp = " + std::to_string(p.tp * p.cp * p.dp);
    }
    if (p.pp > 1 && stride_of(strides(p, false), MeshAxis::pp) != stride_of(strides(p, true), MeshAxis::pp)) {
        return "the dense and the expert mesh would put a pipeline stage on different ranks; put pp last, or dp, cp "
               "and "
               "ep on one side of it";
    }
    return "";
}

Mesh::Mesh(const Plan& plan) : parallelism_(plan.parallelism), world_size_(plan.parallelism.world_size()) {
    const Parallelism& p = parallelism_;
    number_dense();
    number_experts();
    if (p.tp > plan.model.kv_heads && plan.model.kv_heads > 0 && !plan.model.has_latent_attention()) {
        kv_copies_ = p.tp / plan.model.kv_heads;
    }
    mirrored_ = p.model_copies() > 1;
    wraps_ = p.chunks > 1 && !p.ends_meet();
    last_holder_ = p.ends_meet() ? 0 : p.pp - 1;
    ties_across_ranks_ = plan.model.tied_embeddings && p.pp > 1 && last_holder_ != first_holder_;

    const auto set = [this](GroupAxis axis, std::int64_t size) { sizes_[axis] = size; };
    set(GroupAxis::tp, p.tp);
    set(GroupAxis::kv, kv_copies_);
    set(GroupAxis::cp, p.cp);
    set(GroupAxis::ep, p.ep);
    set(GroupAxis::etp, p.etp);
    set(GroupAxis::dp, p.gradient_ranks() * (mirrored_ ? 2 : 1));
    set(GroupAxis::dp_shard, p.shard_ranks());
    set(GroupAxis::dp_replicate, p.gradient_ranks() / p.shard_ranks());
    set(GroupAxis::edp, plan.model.has_experts() ? p.expert_dp() * (mirrored_ ? 2 : 1) : 0);
    set(GroupAxis::embedding, ties_across_ranks_ ? 2 : 0);
    set(GroupAxis::pipeline, p.pp);
    set(GroupAxis::model, p.tp * p.pp);
    set(GroupAxis::world, world_size_);
    for (const GroupAxis axis :
         {GroupAxis::down_forward, GroupAxis::down_backward, GroupAxis::up_forward, GroupAxis::up_backward}) {
        set(axis, p.pp > 1 ? 2 : 0);
    }
}

void Mesh::number_dense() {
    const Parallelism& p = parallelism_;
    const auto stride = strides(p, false);
    tp_ = {p.tp, stride_of(stride, MeshAxis::tp)};
    cp_ = {p.cp, stride_of(stride, MeshAxis::cp)};
    dp_ = {p.dp, stride_of(stride, MeshAxis::dp)};
    pp_ = {p.pp, stride_of(stride, MeshAxis::pp)};
}

void Mesh::number_experts() {
    const Parallelism& p = parallelism_;
    const auto stride = strides(p, true);
    etp_ = {p.etp, stride_of(stride, MeshAxis::tp)};
    ep_ = {p.ep, stride_of(stride, MeshAxis::ep)};
    edp_ = {p.expert_dp(), stride_of(stride, MeshAxis::dp)};
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
std::vector<std::int64_t> Mesh::box(std::int64_t rank, std::initializer_list<Digit> digits) const {
    std::vector<std::int64_t> members{rank};
    for (const Digit& digit : digits) members.front() -= digit.of(rank) * digit.stride;
    for (const Digit& digit : digits) {
        const std::size_t before = members.size();
        for (std::int64_t i = 1; i < digit.extent; ++i) {
            for (std::size_t m = 0; m < before; ++m) members.push_back(members[m] + i * digit.stride);
        }
    }
    return members;
}

/// cp varies fastest, then dp, so that ranks with neighbouring parts of the sequence are neighbours in the group.
std::vector<std::int64_t> Mesh::gradient_group(std::int64_t rank) const {
    return box(rank, {cp_, dp_});
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
    const auto with_mirror = [&](std::vector<std::int64_t> members) {
        if (!mirrored_) return members;
        const std::int64_t here = pp_.of(rank);
        const std::int64_t shift = (pp_.extent - 1 - 2 * here) * pp_.stride;
        std::vector<std::int64_t> both = members;
        for (const std::int64_t member : members) both.push_back(member + shift);
        if (shift < 0)
            std::rotate(both.begin(), both.begin() + static_cast<std::ptrdiff_t>(members.size()), both.end());
        return both;
    };
    switch (axis) {
        case GroupAxis::tp:
            return box(rank, {tp_});
        case GroupAxis::kv:
            return box(rank, {{kv_copies_, tp_.stride}});
        case GroupAxis::cp:
            return box(rank, {cp_});
        case GroupAxis::ep:
            return box(rank, {ep_});
        case GroupAxis::etp:
            return box(rank, {etp_});
        case GroupAxis::dp:
            return with_mirror(gradient_group(rank));
        case GroupAxis::dp_shard:
        case GroupAxis::dp_replicate: {
            // The dp group is cut into consecutive runs of `shard` ranks; replicas have the same position in each run.
            const std::int64_t all = cp_.extent * dp_.extent;
            const std::int64_t shard = parallelism_.shard_ranks();
            const std::int64_t own = cp_.of(rank) + cp_.extent * dp_.of(rank);
            const bool sharded = axis == GroupAxis::dp_shard;
            const std::int64_t first = rank - cp_.of(rank) * cp_.stride - dp_.of(rank) * dp_.stride;
            const std::int64_t begin = sharded ? own / shard * shard : own % shard;
            const std::int64_t end = sharded ? std::min(begin + shard, all) : all;
            std::vector<std::int64_t> members;
            for (std::int64_t i = begin; i < end; i += sharded ? 1 : shard) {
                members.push_back(first + i % cp_.extent * cp_.stride + i / cp_.extent * dp_.stride);
            }
            return members;
        }
        case GroupAxis::edp:
            return with_mirror(box(rank, {edp_}));
        case GroupAxis::embedding: {
            const std::int64_t here = pp_.of(rank);
            if (!ties_across_ranks_ || (here != first_holder_ && here != last_holder_)) return {};
            const std::int64_t first = rank + (first_holder_ - here) * pp_.stride;
            return {first, first + (last_holder_ - first_holder_) * pp_.stride};
        }
        case GroupAxis::pipeline:
            return box(rank, {pp_});
        case GroupAxis::model:
            return box(rank, {tp_, pp_});
        case GroupAxis::world: {
            std::vector<std::int64_t> everyone(static_cast<std::size_t>(world_size_));
            for (std::size_t i = 0; i < everyone.size(); ++i) everyone[i] = static_cast<std::int64_t>(i);
            return everyone;
        }
        case GroupAxis::down_forward:
        case GroupAxis::down_backward:
        case GroupAxis::up_forward:
        case GroupAxis::up_backward:
            return pair_of(axis, rank);
    }
    throw BugError("an axis without groups");
}

}  // namespace orrery::program
