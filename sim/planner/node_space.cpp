#include "sim/planner/node_space.h"

#include <algorithm>

#include "sim/planner/timing.h"

namespace orrery::sim {

using program::Recompute;

NodeSpace::NodeSpace(const PlanRequest& request, const topologies::Cluster& cluster, const RooflineCost& cost)
    : request_(request), list_(list_candidates(request)), part_sets_(sim::part_sets(request, cluster, cost)) {
    for (const std::vector<Sharding>& shardings : list_.shardings) {
        tried_first_.push_back(list_.tried_first(shardings, allows(Recompute::none)));
    }
}

Choice NodeSpace::choice_of(const SearchNode& node) const {
    const Family& family = family_of(node);
    Choice choice = family.choice;
    choice.micro_batch = family.micro_batches[at(node.micro_batch)];
    choice.recompute = node.recompute;
    if (node.rung <= Rung::block) return choice;
    choice.sharding = shardings_of(node)[at(node.sharding)];
    if (node.recompute == Recompute::selective) choice.recompute_parts = part_sets_[at(node.part_set)];
    (node.offloads ? choice.offload_layers : choice.recompute_layers) = node.layers;
    return choice;
}

bool NodeSpace::allows(Recompute kind) const {
    return std::find(list_.recompute.begin(), list_.recompute.end(), kind) != list_.recompute.end();
}

bool NodeSpace::may_save_activations(const SearchNode& node) const {
    return list_.recompute.back() != Recompute::none || list_.may_offload_activations(family_of(node).choice);
}

bool NodeSpace::is_simulated_whole(const SearchNode& node) const {
    const Family& family = family_of(node);
    Choice choice = family.choice;  // with a micro-batch size of 1
    if (node.rung >= Rung::family) choice.micro_batch = family.micro_batches.front();
    if (node.rung >= Rung::block) choice.micro_batch = family.micro_batches[at(node.micro_batch)];
    return sim::is_simulated_whole(micro_batches_of(request_, choice), choice.pp);
}

SearchNode NodeSpace::mesh_node(std::size_t family) {
    return {.family = static_cast<std::int32_t>(family), .rung = Rung::half};
}

SearchNode NodeSpace::pipeline_node(std::size_t family) {
    return {.family = static_cast<std::int32_t>(family), .rung = Rung::family};
}

std::int64_t NodeSpace::candidates_of(const SearchNode& node) const {
    if (node.rung > Rung::misfit) return 1;
    const std::size_t f = at(node.family);
    std::int64_t candidates = 0;
    if (node.rung <= Rung::mesh) {
        for (std::size_t one = f; one < list_.mesh_end(f); ++one) candidates += candidates_of(pipeline_node(one));
        return candidates;
    }
    const Family& family = family_of(node);
    const std::vector<Sharding>& shardings = shardings_of(node);
    if (node.rung == Rung::misfit) {
        const std::int64_t ways = list_.savings_of(family.choice, shardings[at(node.sharding)]);
        return std::max<std::int64_t>(1, ways - 1);
    }
    for (const Sharding& sharding : shardings) candidates += list_.savings_of(family.choice, sharding);
    return candidates * (node.rung == Rung::family ? std::ssize(family.micro_batches) : 1);
}

Choice NodeSpace::draw(SearchNode node, std::mt19937_64& random) const {
    const auto index = [&](std::size_t count) { return random() % count; };
    if (node.rung <= Rung::mesh) {
        const std::size_t f = at(node.family);
        node = pipeline_node(f + index(list_.mesh_end(f) - f));
    }
    const Family& family = family_of(node);
    const std::vector<Sharding>& shardings = shardings_of(node);
    const auto sharding = [&]() -> const Sharding& { return shardings[at(node.sharding)]; };
    if (node.rung == Rung::family) node.micro_batch = static_cast<std::int32_t>(index(family.micro_batches.size()));
    if (node.rung <= Rung::block) {
        do node.sharding = static_cast<std::int32_t>(index(shardings.size()));
        while (list_.savings_of(family.choice, sharding()) == 0);
    }
    if (node.rung <= Rung::misfit) {
        node.recompute = list_.recompute[index(list_.recompute.size())];
        node.part_set = static_cast<std::int16_t>(index(part_sets_.size()));
        node.offloads = list_.must_offload_activations(sharding()) ||
                        (list_.may_offload_activations(family.choice) && index(list_.recompute.size() + 1) == 0);
        if (node.offloads) node.recompute = Recompute::none;
    }
    node.rung = Rung::flat;
    return choice_of(node);
}

}  // namespace orrery::sim
