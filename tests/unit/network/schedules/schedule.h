// Explicit transfers of every collective algorithm, round by round (sim/network/algorithms/stages.h).
#pragma once

#include <cstdint>
#include <vector>

#include "sim/network/algorithms/stages.h"

namespace orrery::sim::algorithms {

struct Collective {
    program::CommKind kind{};
    std::int64_t bytes = 0;  // message size S (program::CommKind); not used for an all_to_all with pair_bytes
    std::int64_t root = 0;   // broadcast, reduce, scatter, gather
    /// all_to_all with unequal parts: bytes from i to j at [i * n + j]. Rank i's bytes start after those of lower
    /// ranks. Empty: equal parts. Only direct and pairwise support it.
    std::vector<std::int64_t> pair_bytes;
};

/// What the stages of these algorithms need in addition.
struct ChunkedTask : Task {
    std::int64_t chunks = 1;
    std::vector<std::int64_t> pair_bytes;
};

class Schedule {
  public:
    Schedule(std::int64_t ranks, std::int64_t switches, Stages stages);
    [[nodiscard]] std::int64_t ranks() const { return ranks_; }
    [[nodiscard]] std::int64_t parties() const { return ranks_ + switches_; }
    [[nodiscard]] std::int64_t rounds() const { return rounds_; }
    /// Visits the party's transfers of the round.
    void sends(std::int64_t round, Party party, const Visit& visit) const;

  private:
    std::int64_t ranks_ = 0, switches_ = 0, rounds_ = 0;
    Stages stages_;
};

/// `chunks` must be 1 unless the algorithm supports chunks (Manner::chunks). A group of one has no rounds. Throws
/// BugError if why_not gives a reason.
[[nodiscard]] Schedule make_schedule(Algorithm algorithm, const Collective& collective, const Group& group,
                                     std::int64_t chunks = 1);

/// Ranks in the order in which ring `channel` visits them: node by node, from the ring's entry on (ring_entries).
[[nodiscard]] std::vector<std::int64_t> ring_order(const Group& group, std::int64_t channel);

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

[[nodiscard]] Stages ring_stages(const ChunkedTask& task);
[[nodiscard]] Stages neighbor_exchange_stages(const ChunkedTask& task);
[[nodiscard]] Stages chain_stages(const ChunkedTask& task);
[[nodiscard]] Stages binary_tree_stages(const ChunkedTask& task);
[[nodiscard]] Stages double_binary_tree_stages(const ChunkedTask& task);
[[nodiscard]] Stages bruck_stages(const ChunkedTask& task);
[[nodiscard]] Stages direct_stages(const ChunkedTask& task);
[[nodiscard]] Stages pairwise_stages(const ChunkedTask& task);
[[nodiscard]] Stages hierarchical_stages(const ChunkedTask& task);
[[nodiscard]] Stages nvls_stages(const ChunkedTask& task);
[[nodiscard]] Stages pat_stages(const ChunkedTask& task);
[[nodiscard]] Stages collnet_stages(const ChunkedTask& task);

/// Double binary trees between the nodes of an even group, without chains inside the nodes: rail j carries part j of
/// `whole`. NVLS uses it between nodes.
[[nodiscard]] Stage rail_tree_stage(const Group& group, Slice whole, std::int64_t chunks);

}  // namespace orrery::sim::algorithms
