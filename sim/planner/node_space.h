// Private to the planner: which candidates the search's nodes stand for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "core/index.h"
#include "sim/planner/candidates.h"
#include "sim/planner/part_sets.h"
#include "sim/planner/search_node.h"

namespace orrery::sim {

class NodeSpace {
  public:
    /// Keeps a reference to the request. Throws like list_candidates.
    NodeSpace(const PlanRequest& request, const topologies::Cluster& cluster, const RooflineCost& cost);

    [[nodiscard]] const CandidateList& list() const { return list_; }
    /// Those of selective recomputation, by SearchNode::part_set.
    [[nodiscard]] const std::vector<PartSet>& part_sets() const { return part_sets_; }
    [[nodiscard]] const Family& family_of(const SearchNode& node) const { return list_.families[at(node.family)]; }
    [[nodiscard]] const std::vector<Sharding>& shardings_of(const SearchNode& node) const {
        return list_.shardings_of(family_of(node));
    }
    /// With the fields that nodes of the rung have in common.
    [[nodiscard]] Choice choice_of(const SearchNode& node) const;
    [[nodiscard]] bool allows(program::Recompute kind) const;
    /// CandidateList::tried_first of the block's shardings.
    [[nodiscard]] const std::vector<std::size_t>& tried_first(const SearchNode& node) const {
        return tried_first_[family_of(node).shardings];
    }
    /// Whether candidates of the block may recompute or offload activations.
    [[nodiscard]] bool may_save_activations(const SearchNode& node) const;
    /// Whether every candidate of the node would be (timing.h).
    [[nodiscard]] bool is_simulated_whole(const SearchNode& node) const;

    /// The node of all pipelines on the mesh of this family, before its bound is known, and that of its own pipeline.
    [[nodiscard]] static SearchNode mesh_node(std::size_t family);
    [[nodiscard]] static SearchNode pipeline_node(std::size_t family);
    [[nodiscard]] std::int64_t candidates_of(const SearchNode& node) const;
    /// One of them; recomputed or offloaded blocks are not decided.
    [[nodiscard]] Choice draw(SearchNode node, std::mt19937_64& random) const;

  private:
    const PlanRequest& request_;
    const CandidateList list_;
    const std::vector<PartSet> part_sets_;
    std::vector<std::vector<std::size_t>> tried_first_;  // by Family::shardings
};

}  // namespace orrery::sim
