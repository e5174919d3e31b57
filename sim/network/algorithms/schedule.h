// A collective as explicit transfers, in rounds, generated as they are asked for.
//
// The message is a logical array of bytes in which each transfer names a slice:
//   all_reduce, broadcast, reduce          [0, S), the same at every rank
//   all_gather, reduce_scatter, scatter, gather  [0, S); rank r's own slice is part r of n (see part_of)
//   all_to_all, exchange                   [0, n S): what rank i holds at first is [i S, (i + 1) S); of an all_to_all
//   part
//                                          j of it is for rank j, and of an exchange all of it is for rank i + 1
//   send, recv                             [0, S), from rank 0 to rank 1
//
// Order: a transfer of a round starts when everything that its sender and its receiver sent and received in earlier
// rounds of its channel is done. So a schedule says what depends on what without listing it, and sends may be
// rendezvous.
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
/// Part `index` of `count` parts of the slice, of which the first bytes % count are one byte longer than the others.
[[nodiscard]] Slice part_of(Slice whole, std::int64_t index, std::int64_t count);
/// Parts [first, last) together.
[[nodiscard]] Slice parts_of(Slice whole, std::int64_t first, std::int64_t last, std::int64_t count);

/// Ranks are 0 … n - 1; switches that reduce and multicast follow them. A switch holds nothing at first.
using Party = std::int64_t;

struct Transfer {
    Party from = 0, to = 0;
    Slice slice;
    bool reduces = false;  // the receiver adds it to what it holds of the slice; otherwise it replaces that
    std::int64_t channel = 0;
};

struct Collective {
    program::CommKind kind{};
    std::int64_t bytes = 0;  // message size S (program::CommKind); of an all_to_all with pair_bytes not used
    std::int64_t root = 0;   // broadcast, reduce, scatter, gather
    /// all_to_all with unequal parts: bytes from i to j at [i * n + j]. Rank i's bytes then start after those of the
    /// ranks before it. Empty: equal parts. Only direct and pairwise run it.
    std::vector<std::int64_t> pair_bytes;
};

using Visit = std::function<void(const Transfer&)>;
/// A run of rounds: what a party sends in one of them.
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
    /// What the party sends in the round. Slices may be empty; a transfer never goes to its sender.
    void sends(std::int64_t round, Party party, const Visit& visit) const;

  private:
    std::int64_t ranks_ = 0, switches_ = 0, rounds_ = 0;
    Stages stages_;
};

/// `chunks` where the algorithm takes them (Manner::chunks), else 1. A group of one has no rounds. BugError when
/// why_not names a reason.
[[nodiscard]] Schedule make_schedule(Algorithm algorithm, const Collective& collective, const Group& group,
                                     std::int64_t chunks = 1);

/// Ranks in the order in which ring `channel` visits them: node by node, as the group lists them; it enters a node on
/// the rail on which it left the one before, if the node has a member there, else at member `channel`, and visits its
/// members upward in nodes of even number and downward in the others, so that it leaves one rail further. All channels
/// together then use every rail alike.
[[nodiscard]] std::vector<std::int64_t> ring_order(const Group& group, std::int64_t channel);
/// How many rings: one for each member of the emptiest node.
[[nodiscard]] std::int64_t ring_channels(const Group& group);

/// The binary tree over labels 0 … n - 1 on which double binary trees build: label 0 has one child, odd labels are
/// leaves. Depth at most ceil(log2 n). Source: Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth
/// broadcast, reduction and scan" (2009); NCCL builds its trees alike (src/graph/trees.cc).
struct TreePlace {
    std::int64_t parent = -1;
    std::int64_t children[2] = {-1, -1};
    std::int64_t depth = 0;
};
[[nodiscard]] TreePlace tree_place(std::int64_t label, std::int64_t count);
/// A node's place in tree `tree` (0 or 1) of a pair in which a node has children in one tree only. Without a root (-1:
/// all-reduce) the second is the first mirrored (count even) or shifted by one; with one, both have that root.
[[nodiscard]] TreePlace double_tree_place(std::int64_t node, std::int64_t count, std::int64_t tree, std::int64_t root);

}  // namespace orrery::sim::algorithms
