#include "sim/engine/rank_groups.h"

#include <string>
#include <utility>

#include "core/error.h"

namespace orrery::sim {

using program::CommKind;
using program::GroupAxis;

Seat seat_of(GroupAxis axis, CommKind kind) {
    const bool pair = kind == CommKind::send || kind == CommKind::recv;
    ORRERY_CHECK(pair == program::is_pair(axis),
                 "a " + std::string(program::name_of(kind)) + " on the axis " + std::string(program::name_of(axis)));
    return seat_on(axis, kind == CommKind::recv);
}

RankGroups::RankGroups(const program::Program& program) : world_size_(program.mesh->world_size()) {
    for (const program::Body& body : program.bodies) {
        for (const program::Instruction& instruction : body.instructions) {
            if (instruction.is_communication) {
                families_[static_cast<std::size_t>(instruction.communication.axis)].used = true;
            }
        }
    }
    for (std::size_t axis = 0; axis < families_.size(); ++axis) {
        GroupFamily& family = families_[axis];
        family.axis = static_cast<GroupAxis>(axis);
        family.pairs = program::is_pair(family.axis);
        if (!family.used) continue;
        add_family(*program.mesh, family);
        seats_.push_back(seat_on(family.axis, false));
    }
    const std::vector<Seat> firsts = seats_;
    for (const Seat seat : firsts) {
        if (sends(seat)) seats_.push_back(seat_on(axis_of(seat), true));
    }
}

void RankGroups::add_family(const program::Mesh& mesh, GroupFamily& family) const {
    const std::string name(program::name_of(family.axis));
    family.size = mesh.group_size(family.axis);
    family.group_of.assign(static_cast<std::size_t>(world_size_), -1);
    if (family.pairs) family.received_of = family.group_of;
    for (std::int64_t rank = 0; rank < world_size_; ++rank) {
        if (family.group_of[static_cast<std::size_t>(rank)] >= 0) continue;  // a member of an earlier one
        const std::vector<std::int64_t> members = mesh.group_of(family.axis, rank);
        if (members.empty()) continue;
        ORRERY_CHECK(static_cast<std::int64_t>(members.size()) == family.size,
                     "a group on the axis " + name + " has another size than the rest");
        for (std::size_t i = 0; i < members.size(); ++i) {
            std::vector<std::int32_t>& groups = family.pairs && i > 0 ? family.received_of : family.group_of;
            std::int32_t& group = groups.at(static_cast<std::size_t>(members[i]));
            ORRERY_CHECK(group < 0, "rank " + std::to_string(members[i]) + " is in two groups on the axis " + name);
            group = static_cast<std::int32_t>(family.count);
            family.ranks.push_back(static_cast<std::int32_t>(members[i]));
        }
        ++family.count;
    }
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
