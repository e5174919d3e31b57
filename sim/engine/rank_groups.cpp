#include "sim/engine/rank_groups.h"

#include <string>

#include "core/error.h"

namespace orrery::sim {

using program::CommKind;
using program::GroupAxis;

Endpoint endpoint_of(GroupAxis axis, CommKind kind) {
    const bool pair = kind == CommKind::send || kind == CommKind::recv;
    ORRERY_CHECK(pair == program::is_pair(axis), "a communication of kind " + std::string(program::name_of(kind)) +
                                                     " cannot be on the axis " + std::string(program::name_of(axis)));
    return endpoint_on(axis, kind == CommKind::recv);
}

RankGroups::RankGroups(const program::Program& program) : world_size_(program.mesh->world_size()) {
    program::PerAxis<bool> used{};
    for (const program::Body& body : program.bodies) {
        for (const program::Instruction& instruction : body.instructions) {
            if (instruction.is_communication) used[instruction.communication.axis] = true;
        }
    }
    for (const GroupAxis axis : program::kAxes) {
        families_[axis].axis = axis;
        families_[axis].pairs = program::is_pair(axis);
        if (used[axis]) add_family(*program.mesh, families_[axis]);
    }
    for (const bool receiver : {false, true}) {
        for (const GroupAxis axis : program::kAxes) {
            if (used[axis] && (!receiver || program::is_pair(axis))) endpoints_.push_back(endpoint_on(axis, receiver));
        }
    }
}

void RankGroups::add_family(const program::Mesh& mesh, GroupFamily& family) const {
    const std::string name(program::name_of(family.axis));
    family.size = mesh.group_size(family.axis);
    family.group_of.assign(static_cast<std::size_t>(world_size_), -1);
    if (family.pairs) family.received_of = family.group_of;
    for (std::int64_t rank = 0; rank < world_size_; ++rank) {
        if (family.group_of[static_cast<std::size_t>(rank)] >= 0) continue;  // member of an earlier group
        const std::vector<std::int64_t> members = mesh.group_of(family.axis, rank);
        if (members.empty()) continue;
        ORRERY_CHECK(static_cast<std::int64_t>(members.size()) == family.size,
                     "groups on the axis " + name + " have different sizes");
        for (std::size_t i = 0; i < members.size(); ++i) {
            std::vector<GroupIndex>& groups = family.pairs && i > 0 ? family.received_of : family.group_of;
            GroupIndex& group = groups.at(static_cast<std::size_t>(members[i]));
            ORRERY_CHECK(group < 0, "rank " + std::to_string(members[i]) + " is in two groups on the axis " + name);
            group = family.end;
            family.ranks.push_back(static_cast<std::int32_t>(members[i]));
        }
        ++family.end;
    }
}

}  // namespace orrery::sim
