// The algorithms by which groups run collectives, by their names in the literature and in the libraries.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/program/program.h"
#include "topologies/cluster.h"

namespace orrery::sim::algorithms {

enum class Algorithm : std::uint8_t {
    ring,                // n - 1 steps around a ring; on several nodes one rotated ring for each member of a node
    neighbor_exchange,   // all-gather of an even number of ranks in n / 2 steps, to either side by turns
    chain,               // broadcast, reduce: one rank after the other, in chunks
    binary_tree,         // broadcast, reduce: a binary heap, in chunks
    binomial_tree,       // log2 n steps; without chunks
    knomial_tree,        // the same with three children a step (radix 4)
    double_binary_tree,  // two complementary trees over the nodes, a chain inside each; each carries half
    halving_doubling,    // recursive halving (reduce-scatter), recursive doubling (all-gather), or both (Rabenseifner)
    recursive_doubling,  // all-reduce of the whole message in every step
    bruck,               // log2 n steps for any n
    pat,                 // parallel aggregated trees: a binomial tree for each rank's slice, all at once
    bcube,               // direct exchanges in groups whose sizes are the prime factors of n
    direct,              // everybody to everybody (or the root) at once
    pairwise,            // everybody to everybody, one peer a step
    hierarchical,        // rings: inside the nodes, then between them rail by rail, then inside the nodes
    nvls,                // reduction and multicast in the node's switches; between nodes double binary trees
    collnet,             // reduction and multicast in the network (SHARP), one tree for each rail
};
inline constexpr std::size_t kAlgorithms = static_cast<std::size_t>(Algorithm::collnet) + 1;

/// "ring", "double_binary_tree" …
[[nodiscard]] std::string_view name_of(Algorithm algorithm);
[[nodiscard]] std::optional<Algorithm> algorithm_named(std::string_view name);
/// All of them, in the order of the enumeration.
[[nodiscard]] std::span<const Algorithm> all_algorithms();

/// A group as its nodes hold it. Ranks are numbered node by node.
class Group {
  public:
    /// `nodes` nodes with `members` ranks each; member j is on rail j.
    [[nodiscard]] static Group even(std::int64_t nodes, std::int64_t members);
    /// n ranks that know of no nodes: each is a node of its own.
    [[nodiscard]] static Group flat(std::int64_t ranks) { return even(ranks, 1); }
    /// Devices node by node, nodes ascending, without duplicates.
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
    std::vector<std::int64_t> first_;  // of each node, and the number of ranks
    std::vector<std::int64_t> node_, rail_;
    std::int64_t fewest_ = 0, most_ = 0;
};

/// The order in which a group visits devices, each once: node by node in ascending order and, where devices meet on
/// PCIe (NodeLayout::shares_pcie), those of a switch and of a socket one after the other.
[[nodiscard]] std::vector<std::int64_t> visiting_order(const topologies::Cluster& cluster,
                                                       std::vector<std::int64_t> devices);

/// Why this algorithm cannot run this collective in this group, as the end of a sentence; empty: it can.
[[nodiscard]] std::string why_not(Algorithm algorithm, program::CommKind kind, const Group& group);
/// Whether it runs the collective in some group.
[[nodiscard]] bool runs(Algorithm algorithm, program::CommKind kind);
/// Whether its transfers follow each other in pieces so small that all of them proceed at once, so that its time is
/// the latency of its steps and then that of its busiest link. Others go step by step.
[[nodiscard]] bool is_streamed(Algorithm algorithm);
/// Whether it cuts the message in chunks, of which `chunks` says how many: chain, binary_tree and the streamed ones.
/// PAT runs once for each chunk, which bounds what a rank has to hold for others.
[[nodiscard]] bool takes_chunks(Algorithm algorithm);

}  // namespace orrery::sim::algorithms
