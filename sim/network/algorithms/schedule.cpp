#include "sim/network/algorithms/schedule.h"

#include <algorithm>

#include "core/error.h"
#include "sim/network/algorithms/stages.h"

namespace orrery::sim::algorithms {
namespace {

std::int64_t switches_of(Algorithm algorithm, const Group& group) {
    if (algorithm == Algorithm::nvls) return group.nodes();
    if (algorithm == Algorithm::collnet) return group.most_members();
    return 0;
}

Stages stages_of(Algorithm algorithm, const Task& task) {
    switch (algorithm) {
        case Algorithm::ring:
            return ring_stages(task);
        case Algorithm::neighbor_exchange:
            return neighbor_exchange_stages(task);
        case Algorithm::chain:
            return chain_stages(task);
        case Algorithm::binary_tree:
            return binary_tree_stages(task);
        case Algorithm::binomial_tree:
            return knomial_stages(task, 2);
        case Algorithm::knomial_tree:
            return knomial_stages(task, 4);
        case Algorithm::double_binary_tree:
            return double_binary_tree_stages(task);
        case Algorithm::halving_doubling:
            return halving_doubling_stages(task);
        case Algorithm::recursive_doubling:
            return recursive_doubling_stages(task);
        case Algorithm::bruck:
            return bruck_stages(task);
        case Algorithm::pat:
            return pat_stages(task);
        case Algorithm::bcube:
            return bcube_stages(task);
        case Algorithm::direct:
            return direct_stages(task);
        case Algorithm::pairwise:
            return pairwise_stages(task);
        case Algorithm::hierarchical:
            return hierarchical_stages(task);
        case Algorithm::nvls:
            return nvls_stages(task);
        case Algorithm::collnet:
            return collnet_stages(task);
    }
    return {};
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

Schedule::Schedule(std::int64_t ranks, std::int64_t switches, std::vector<Stage> stages)
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
    ORRERY_CHECK(false, "a round beyond the schedule's " + std::to_string(rounds_));
}

Schedule make_schedule(Algorithm algorithm, const Collective& collective, const Group& group, std::int64_t chunks) {
    const std::string reason = why_not(algorithm, collective.kind, group);
    ORRERY_CHECK(reason.empty(), reason);
    ORRERY_CHECK(chunks == 1 || (chunks > 1 && takes_chunks(algorithm)), std::to_string(chunks) + " chunks");
    ORRERY_CHECK(
        collective.bytes >= 0 && collective.root >= 0 && collective.root < group.ranks(),
        "a collective of " + std::to_string(collective.bytes) + " bytes, root " + std::to_string(collective.root));
    if (group.ranks() == 1) return {1, 0, {}};
    // The stages live on with the schedule, and read the group through a copy of their own.
    const auto own = std::make_shared<const Group>(group);
    Stages stages = stages_of(algorithm, Task{collective, *own, chunks});
    for (Stage& stage : stages) {
        stage.sends = [own, sends = std::move(stage.sends)](std::int64_t round, Party party, const Schedule::Visit& v) {
            sends(round, party, v);
        };
    }
    return {group.ranks(), switches_of(algorithm, group), std::move(stages)};
}

}  // namespace orrery::sim::algorithms
