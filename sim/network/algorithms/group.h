// A group of ranks, by the nodes that hold them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "topologies/cluster.h"

namespace orrery::sim::algorithms {

/// Ranks are numbered node by node.
class Group {
  public:
    /// `nodes` nodes with `members` ranks each; member j is on rail j.
    [[nodiscard]] static Group even(std::int64_t nodes, std::int64_t members);
    /// n ranks, each on a node of its own.
    [[nodiscard]] static Group flat(std::int64_t ranks) { return even(ranks, 1); }
    /// `devices` ordered by ascending node, without duplicates.
    [[nodiscard]] static Group of(const topologies::Cluster& cluster, std::span<const std::int64_t> devices);

    [[nodiscard]] std::int64_t ranks() const { return first_.back(); }
    [[nodiscard]] std::int64_t nodes() const { return static_cast<std::int64_t>(first_.size()) - 1; }
    [[nodiscard]] std::int64_t first_of(std::int64_t node) const { return first_[static_cast<std::size_t>(node)]; }
    [[nodiscard]] std::int64_t members_of(std::int64_t node) const { return first_of(node + 1) - first_of(node); }
    [[nodiscard]] std::int64_t node_of(std::int64_t rank) const { return node_[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] std::int64_t rail_of(std::int64_t rank) const { return rail_[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] std::int64_t fewest_members() const { return fewest_; }
    [[nodiscard]] std::int64_t most_members() const { return most_; }
    [[nodiscard]] bool is_even() const { return fewest_ == most_; }

  private:
    Group(std::vector<std::int64_t> first, std::vector<std::int64_t> rail);
    std::vector<std::int64_t> first_;  // first rank of each node, then the number of ranks
    std::vector<std::int64_t> node_, rail_;
    std::int64_t fewest_ = 0, most_ = 0;
};

/// The devices in the order in which a ring visits them, without duplicates: by ascending node and, where devices share
/// PCIe links (NodeLayout::shares_pcie), by socket and switch.
[[nodiscard]] std::vector<std::int64_t> visiting_order(const topologies::Cluster& cluster,
                                                       std::vector<std::int64_t> devices);

/// A ring visits members upward in even nodes and downward in odd ones, so that it leaves one rail further than it
/// enters. Together the rings, one for each member of the node with the fewest, then use all rails equally.
[[nodiscard]] inline std::int64_t ring_direction(std::int64_t node) {
    return node % 2 == 0 ? 1 : -1;
}
[[nodiscard]] inline std::int64_t ring_channels(const Group& group) {
    return group.fewest_members();
}
/// The member at which ring `channel` enters each node: the one on the rail on which it left the previous node, if the
/// node has a member there, else member `channel`. It leaves at the member just before the entry in its direction.
[[nodiscard]] std::vector<std::int64_t> ring_entries(const Group& group, std::int64_t channel);

}  // namespace orrery::sim::algorithms
