// A collective as explicit transfers in rounds, generated on demand.
//
// The message is a logical array of bytes in which each transfer names a slice:
//   all_reduce, broadcast, reduce          [0, S), the same at every rank
//   all_gather, reduce_scatter, scatter, gather  [0, S); rank r's own slice is part r of n (see part_of)
//   all_to_all, exchange                   [0, n S): rank i holds [i S, (i + 1) S) at first; in an all_to_all part j
//                                          of that is for rank j, in an exchange all of it is for rank i + 1
//   send, recv                             [0, S), from rank 0 to rank 1
//
// Order: a transfer starts when all transfers in which its sender or its receiver took part in earlier rounds of its
// channel are done. Dependencies therefore need not be listed, and sends may be rendezvous.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "sim/network/algorithms/algorithm.h"

namespace orrery::sim::algorithms {

struct Slice {
    std::int64_t offset = 0;
    std::int64_t bytes = 0;
};
/// Part `index` of `count` parts of the slice. The first bytes % count parts are one byte longer than the others.
[[nodiscard]] Slice part_of(Slice whole, std::int64_t index, std::int64_t count);
/// Parts [first, last) together.
[[nodiscard]] Slice parts_of(Slice whole, std::int64_t first, std::int64_t last, std::int64_t count);

/// Ranks are 0 … n - 1; the switches that reduce and multicast come after them. A switch holds nothing at first.
using Party = std::int64_t;

struct Transfer {
    Party from = 0, to = 0;
    Slice slice;
    bool reduces = false;  // the receiver adds the data to its slice; otherwise the data replace it
    std::int64_t channel = 0;
};

struct Collective {
    program::CommKind kind{};
    std::int64_t bytes = 0;  // message size S (program::CommKind); not used for an all_to_all with pair_bytes
    std::int64_t root = 0;   // broadcast, reduce, scatter, gather
    /// all_to_all with unequal parts: bytes from i to j at [i * n + j]. Rank i's bytes start after those of lower
    /// ranks. Empty: equal parts. Only direct and pairwise support it.
    std::vector<std::int64_t> pair_bytes;
};

using Visit = std::function<void(const Transfer&)>;
/// A sequence of rounds; `sends` visits the transfers that a party sends in one of them.
struct Stage {
    std::int64_t rounds = 0;
    std::function<void(std::int64_t round, Party party, const Visit& visit)> sends;
};

class Schedule {
  public:
    Schedule(std::int64_t ranks, std::int64_t switches, Stages stages);
    [[nodiscard]] std::int64_t ranks() const { return ranks_; }
    [[nodiscard]] std::int64_t parties() const { return ranks_ + switches_; }
    [[nodiscard]] std::int64_t rounds() const { return rounds_; }
    /// Visits the party's transfers of the round. Slices may be empty. No transfer goes to its sender.
    void sends(std::int64_t round, Party party, const Visit& visit) const;

  private:
    std::int64_t ranks_ = 0, switches_ = 0, rounds_ = 0;
    Stages stages_;
};

/// `chunks` must be 1 unless the algorithm supports chunks (Manner::chunks). A group of one has no rounds. Throws
/// BugError if why_not gives a reason.
[[nodiscard]] Schedule make_schedule(Algorithm algorithm, const Collective& collective, const Group& group,
                                     std::int64_t chunks = 1);

/// Ranks in the order in which ring `channel` visits them: node by node, in the group's order. The ring enters a node
/// on the rail on which it left the previous one, if the node has a member there, else at member `channel`. It visits
/// members upward in even nodes and downward in odd ones, so that it leaves one rail further. Together the channels
/// then use all rails equally.
[[nodiscard]] std::vector<std::int64_t> ring_order(const Group& group, std::int64_t channel);
/// Number of rings: one for each member of the node with the fewest.
[[nodiscard]] std::int64_t ring_channels(const Group& group);

/// The binary tree over labels 0 … n - 1 underlying double binary trees: label 0 has one child, odd labels are leaves.
/// Depth at most ceil(log2 n). Source: Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast,
/// reduction and scan" (2009); NCCL builds its trees the same way (src/graph/trees.cc).
struct TreePlace {
    std::int64_t parent = -1;
    std::int64_t children[2] = {-1, -1};
    std::int64_t depth = 0;
};
[[nodiscard]] TreePlace tree_place(std::int64_t label, std::int64_t count);
/// A node's place in tree `tree` (0 or 1) of a pair in which every node has two children in at most one tree. Without a
/// root (-1: all-reduce) the second tree is the first one mirrored (count even) or shifted by one; with a root, both
/// trees have it.
[[nodiscard]] TreePlace double_tree_place(std::int64_t node, std::int64_t count, std::int64_t tree, std::int64_t root);

}  // namespace orrery::sim::algorithms
