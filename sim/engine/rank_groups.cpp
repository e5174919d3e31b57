#include "sim/engine/rank_groups.h"

#include <utility>

#include "core/error.h"
#include "core/random.h"

namespace orrery::sim {

using program::CommKind;
using program::GroupAxis;

Seat seat_of(GroupAxis axis, CommKind kind) {
    switch (axis) {
        case GroupAxis::tp:
            return Seat::tp;
        case GroupAxis::dp:
            return Seat::dp;
        case GroupAxis::embedding:
            return Seat::embedding;
        case GroupAxis::pp_forward:
            return kind == CommKind::send ? Seat::send_forward : Seat::recv_forward;
        case GroupAxis::pp_backward:
            return kind == CommKind::send ? Seat::send_backward : Seat::recv_backward;
    }
    throw BugError("an axis without a seat");
}

GroupAxis axis_of(Seat seat) {
    switch (seat) {
        case Seat::tp:
            return GroupAxis::tp;
        case Seat::dp:
            return GroupAxis::dp;
        case Seat::embedding:
            return GroupAxis::embedding;
        case Seat::send_forward:
        case Seat::recv_forward:
            return GroupAxis::pp_forward;
        case Seat::send_backward:
        case Seat::recv_backward:
            return GroupAxis::pp_backward;
    }
    throw BugError("a seat without an axis");
}

Seat member_seat(GroupAxis axis, std::int64_t member) {
    return seat_of(axis, member == 0 ? CommKind::send : CommKind::recv);
}

RankGroups::RankGroups(const program::Program& program) {
    const program::Parallelism& mesh = program.plan->parallelism;
    tp_ = mesh.tp;
    stage_size_ = mesh.tp * mesh.dp;
    stages_ = mesh.pp;
    world_size_ = mesh.world_size();
    const std::int64_t links = (stages_ - 1) * stage_size_;

    const auto family_at = [this](GroupAxis axis) -> GroupFamily& { return families_[static_cast<std::size_t>(axis)]; };
    family_at(GroupAxis::tp) = {
        .axis = GroupAxis::tp, .count = world_size_ / tp_, .size = tp_, .stride = 1, .block_stride = tp_};
    family_at(GroupAxis::dp) = {.axis = GroupAxis::dp,
                                .count = stages_ * tp_,
                                .size = mesh.dp,
                                .stride = tp_,
                                .block = tp_,
                                .block_stride = stage_size_};
    family_at(GroupAxis::embedding) = {
        .axis = GroupAxis::embedding, .count = stages_ > 1 ? stage_size_ : 0, .size = 2, .stride = links};
    family_at(GroupAxis::pp_forward) = {
        .axis = GroupAxis::pp_forward, .pairs = true, .count = links, .size = 2, .stride = stage_size_};
    family_at(GroupAxis::pp_backward) = {.axis = GroupAxis::pp_backward,
                                         .pairs = true,
                                         .count = links,
                                         .size = 2,
                                         .stride = -stage_size_,
                                         .offset = stage_size_};
    for (const program::Body& body : program.bodies) {
        for (const program::Instruction& instruction : body.instructions) {
            if (instruction.is_communication) family_at(instruction.communication.axis).used = true;
        }
    }
    for (GroupFamily& family : families_) {
        if (!family.used) family.count = 0;
    }
}

std::int64_t RankGroups::group(Seat seat, std::int64_t rank) const {
    if (!families_[static_cast<std::size_t>(axis_of(seat))].used) return -1;
    const bool in_first = rank < stage_size_;
    const bool in_last = rank >= world_size_ - stage_size_;
    switch (seat) {
        case Seat::tp:
            return rank / tp_;
        case Seat::dp:
            return rank / stage_size_ * tp_ + rank % tp_;
        case Seat::embedding:
            if (stages_ == 1 || !(in_first || in_last)) return -1;
            return rank % stage_size_;
        case Seat::send_forward:
        case Seat::recv_backward:
            return in_last ? -1 : rank;
        case Seat::recv_forward:
        case Seat::send_backward:
            return in_first ? -1 : rank - stage_size_;
    }
    return -1;
}

DenseIds::Entry& DenseIds::place(std::uint64_t hash) {
    const std::size_t mask = table_.size() - 1;
    std::size_t at = static_cast<std::size_t>(hash) & mask;
    while (table_[at].id >= 0 && table_[at].hash != hash) at = (at + 1) & mask;
    return table_[at];
}

std::int32_t DenseIds::id_of(std::uint64_t hash) {
    Entry& entry = place(hash);
    if (entry.id >= 0) return entry.id;
    entry = {hash, size_++};
    const std::int32_t id = entry.id;
    if (static_cast<std::size_t>(size_) * 2 > table_.size()) {
        const std::vector<Entry> old = std::exchange(table_, std::vector<Entry>(table_.size() * 4));
        for (const Entry& moved : old) {
            if (moved.id >= 0) place(moved.hash) = moved;
        }
    }
    return id;
}

}  // namespace orrery::sim
