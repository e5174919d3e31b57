#include "sim/network/algorithms/schedule.h"

#include <algorithm>

#include "core/error.h"
#include "sim/network/algorithms/stages.h"

namespace orrery::sim::algorithms {
namespace {

std::int64_t switches_of(Algorithm algorithm, const Group& group) {
    switch (row_of(algorithm).manner.in_switches) {
        case InSwitches::of_nodes:
            return group.nodes();
        case InSwitches::of_network:
            return group.most_members();
        case InSwitches::none:
            break;
    }
    return 0;
}

}  // namespace

Slice part_of(Slice whole, std::int64_t index, std::int64_t count) {
    return parts_of(whole, index, index + 1, count);
}

Slice parts_of(Slice whole, std::int64_t first, std::int64_t last, std::int64_t count) {
    const std::int64_t each = whole.bytes / count;
    const std::int64_t longer = whole.bytes % count;
    const auto start = [&](std::int64_t index) { return each * index + std::min(index, longer); };
    return {whole.offset + start(first), start(last) - start(first)};
}

Schedule::Schedule(std::int64_t ranks, std::int64_t switches, Stages stages)
    : ranks_(ranks), switches_(switches), stages_(std::move(stages)) {
    for (const Stage& stage : stages_) rounds_ += stage.rounds;
}

void Schedule::sends(std::int64_t round, Party party, const Visit& visit) const {
    for (const Stage& stage : stages_) {
        if (round < stage.rounds) {
            stage.sends(round, party, visit);
            return;
        }
        round -= stage.rounds;
    }
    ORRERY_CHECK(false, "a round beyond the schedule's last of " + std::to_string(rounds_));
}

Schedule make_schedule(Algorithm algorithm, const Collective& collective, const Group& group, std::int64_t chunks) {
    const std::string reason = why_not(algorithm, collective.kind, group);
    ORRERY_CHECK(reason.empty(), reason);
    ORRERY_CHECK(chunks == 1 || (chunks > 1 && row_of(algorithm).manner.chunks), std::to_string(chunks) + " chunks");
    ORRERY_CHECK(
        collective.bytes >= 0 && collective.root >= 0 && collective.root < group.ranks(),
        "a collective of " + std::to_string(collective.bytes) + " bytes, root " + std::to_string(collective.root));
    if (group.ranks() == 1) return {1, 0, {}};
    // The stages outlive the caller's group, so they keep a shared copy of it.
    const auto own = std::make_shared<const Group>(group);
    Stages stages = row_of(algorithm).stages(Task{collective, *own, chunks});
    for (Stage& stage : stages) {
        stage.sends = [own, sends = std::move(stage.sends)](std::int64_t round, Party party, const Visit& v) {
            sends(round, party, v);
        };
    }
    return {group.ranks(), switches_of(algorithm, group), std::move(stages)};
}

}  // namespace orrery::sim::algorithms
