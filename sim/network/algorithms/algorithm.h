// Collective algorithms, under their names in the literature and in the libraries. Each has one row in kTable with its
// names, the collectives and groups it supports, its link loads and its use in NCCL.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/network/algorithms/group.h"
#include "sim/program/program.h"

namespace orrery::sim::algorithms {

enum class Algorithm : std::uint8_t {
    ring,                // n - 1 steps around a ring; on several nodes one rotated ring per member of a node
    neighbor_exchange,   // all-gather of an even number of ranks in n / 2 steps, alternating between the two neighbours
    chain,               // broadcast, reduce: from rank to rank, in chunks
    binary_tree,         // broadcast, reduce: a binary heap, in chunks
    binomial_tree,       // log2 n steps, unchunked
    knomial_tree,        // the same with three children per step (radix 4)
    double_binary_tree,  // two complementary trees over the nodes, a chain inside each; each carries half
    halving_doubling,    // recursive halving (reduce-scatter), recursive doubling (all-gather), or both (Rabenseifner)
    recursive_doubling,  // all-reduce of the whole message in every step
    bruck,               // log2 n steps for any n
    bcube,               // direct exchanges in groups whose sizes are the prime factors of n
    direct,              // every rank to every other (or to or from the root) at once
    pairwise,            // every rank to every other, one peer per step
    hierarchical,        // rings: inside the nodes, then between them rail by rail, then inside the nodes; all-to-all:
                         // to the member of the same index on each node, and from there to the others in the node
    nvls,                // reduction and multicast in the node's switches; between nodes double binary trees
    nvls_tree,           // the same across nodes; NCCL distinguishes it from NVLS with network switches (SHARP)
    pat,                 // parallel aggregated trees: a binomial tree for each rank's slice, all at once
    collnet,             // reduction and multicast in the network (SHARP), one tree per rail
};

struct Stage;
using Stages = std::vector<Stage>;
struct Task;
class LoadBuilder;

// Transfers, round by round (stages.h).
[[nodiscard]] Stages binomial_tree_stages(const Task& task);
[[nodiscard]] Stages knomial_tree_stages(const Task& task);
[[nodiscard]] Stages halving_doubling_stages(const Task& task);
[[nodiscard]] Stages recursive_doubling_stages(const Task& task);
[[nodiscard]] Stages bcube_stages(const Task& task);

// Link loads in closed form, for algorithms with too many transfers to list (link_loads_phases.cpp).
void add_ring(LoadBuilder& loads);
void add_neighbor_exchange(LoadBuilder& loads);
void add_chain(LoadBuilder& loads);
void add_binary_tree(LoadBuilder& loads);
void add_double_tree(LoadBuilder& loads);
void add_bruck(LoadBuilder& loads);
void add_direct(LoadBuilder& loads);
void add_pairwise(LoadBuilder& loads);
void add_hierarchical(LoadBuilder& loads);
void add_nvls(LoadBuilder& loads);
void add_pat(LoadBuilder& loads);
void add_collnet(LoadBuilder& loads);

/// A bit for each CommKind.
using Kinds = std::uint32_t;
template <typename... Each>
constexpr Kinds kinds(Each... kind) {
    return ((1U << static_cast<unsigned>(kind)) | ...);
}
[[nodiscard]] constexpr bool has(Kinds kinds, program::CommKind kind) {
    return (kinds >> static_cast<unsigned>(kind) & 1U) != 0;
}

/// A send or its receive.
[[nodiscard]] constexpr bool is_transfer(program::CommKind kind) {
    return kind == program::CommKind::send || kind == program::CommKind::recv;
}
/// Whether the group's order matters; the members of other collectives are ordered by their devices.
[[nodiscard]] constexpr bool is_ordered(program::CommKind kind) {
    return is_transfer(kind) || kind == program::CommKind::exchange;
}

/// The switches that reduce and multicast, if any.
enum class InSwitches : std::uint8_t { none, of_nodes, of_network };

/// How NCCL's tuner sees the algorithm.
struct OfNccl {
    std::string_view name;    // NCCL's name; empty: the tuner has no such algorithm
    std::int64_t graph = -1;  // id of the graph in NCCL_GRAPH_FILE that lists its channels; -1: none
    Kinds kinds = 0;
    std::string_view no_other_kinds;      // error for other kinds
    std::string_view no_other_protocols;  // error for protocols other than Simple; empty: it runs in all protocols
};

/// Requirements on the group, and how the algorithm proceeds.
struct Manner {
    Kinds kinds_on_one_node = 0;  // kinds supported inside one node only, in addition to Row::kinds
    bool even_ranks = false;      // needs an even number of ranks
    bool equal_nodes = false;     // needs the same number of members on each node
    bool several_nodes = false;   // needs at least two nodes, except for a group of one rank
    /// Transfers are pipelined in pieces so small that all steps run at once: the time is the latency of the steps plus
    /// the time of the busiest link. Other algorithms run step by step.
    bool streamed = false;
    /// The message is cut into `chunks` chunks. PAT runs once per chunk, which bounds the buffer that a rank needs for
    /// data of others.
    bool chunks = false;
    InSwitches in_switches = InSwitches::none;
};

struct Row {
    Algorithm algorithm{};
    std::string_view name;
    Kinds kinds = 0;
    // How its link loads are known: one of these.
    Stages (*stages)(const Task&) = nullptr;
    void (*add_loads)(LoadBuilder&) = nullptr;
    Manner manner = {};
    OfNccl nccl = {};
};

namespace rows {
using enum Algorithm;
using enum program::CommKind;

inline constexpr Kinds kRings = kinds(all_reduce, all_gather, reduce_scatter);
inline constexpr Kinds kRooted = kinds(broadcast, reduce);
inline constexpr Kinds kBinomial = kRooted | kinds(all_reduce, reduce_scatter, scatter, gather);
inline constexpr Kinds kEvery = kRings | kRooted | kinds(all_to_all, scatter, gather, exchange, send, recv);
inline constexpr Manner kInNodeSwitches{
    .equal_nodes = true, .streamed = true, .chunks = true, .in_switches = InSwitches::of_nodes};
inline constexpr OfNccl kNvls{"nvls", 3, kinds(all_reduce), "NVLS is modelled for an all-reduce only",
                              "NVLS runs in Simple only"};

constexpr Manner on_one_node(Manner manner, Kinds kinds) {
    manner.kinds_on_one_node = kinds;
    return manner;
}
constexpr Manner between_nodes(Manner manner) {
    manner.several_nodes = true;
    return manner;
}
constexpr OfNccl called(std::string_view name, OfNccl nccl) {
    nccl.name = name;
    return nccl;
}

// clang-format off
inline constexpr Row kTable[] = {
    {ring, "ring", kRings, nullptr, add_ring, {}, {"ring", 0, kRings | kRooted}},
    {neighbor_exchange, "neighbor_exchange", kinds(all_gather), nullptr, add_neighbor_exchange,
     {.even_ranks = true}},
    {chain, "chain", kRooted, nullptr, add_chain, {.chunks = true}},
    {binary_tree, "binary_tree", kRooted, nullptr, add_binary_tree, {.chunks = true}},
    {binomial_tree, "binomial_tree", kBinomial, binomial_tree_stages},
    {knomial_tree, "knomial_tree", kRooted, knomial_tree_stages},
    {double_binary_tree, "double_binary_tree", kRooted | kinds(all_reduce), nullptr, add_double_tree,
     {.streamed = true, .chunks = true}, {"tree", 1, kinds(all_reduce), "a tree runs an all-reduce only"}},
    {halving_doubling, "halving_doubling", kRings | kRooted, halving_doubling_stages},
    {recursive_doubling, "recursive_doubling", kinds(all_reduce), recursive_doubling_stages},
    {bruck, "bruck", kinds(all_gather, all_to_all), nullptr, add_bruck},
    {bcube, "bcube", kinds(all_reduce), bcube_stages},
    {direct, "direct", kEvery, nullptr, add_direct},
    {pairwise, "pairwise", kinds(reduce_scatter, all_to_all), nullptr, add_pairwise},
    {hierarchical, "hierarchical", kRings | kinds(all_to_all), nullptr, add_hierarchical, {.equal_nodes = true}},
    {nvls, "nvls", kinds(all_reduce), nullptr, add_nvls,
     on_one_node(kInNodeSwitches, kinds(all_gather, reduce_scatter)), kNvls},
    {nvls_tree, "nvls_tree", kinds(all_reduce), nullptr, add_nvls,
     between_nodes(kInNodeSwitches), called("nvls_tree", kNvls)},
    {pat, "pat", kinds(all_gather, reduce_scatter), nullptr, add_pat, {.chunks = true},
     {"pat", -1, kinds(all_gather, reduce_scatter), "PAT runs an all-gather or a reduce-scatter only",
      "PAT runs in Simple only"}},
    {collnet, "collnet", kinds(all_reduce), nullptr, add_collnet,
     {.equal_nodes = true, .several_nodes = true, .streamed = true, .chunks = true,
      .in_switches = InSwitches::of_network}},
};
// clang-format on
}  // namespace rows

/// In the order of the enumeration, which for NCCL's algorithms is also NCCL's order.
inline constexpr std::span<const Row> kTable = rows::kTable;

[[nodiscard]] constexpr const Row& row_of(Algorithm algorithm) {
    return kTable[static_cast<std::size_t>(algorithm)];
}
/// "ring", "double_binary_tree" …
[[nodiscard]] constexpr std::string_view name_of(Algorithm algorithm) {
    return row_of(algorithm).name;
}
/// NCCL's name ("tree"), or the algorithm's own if NCCL has none.
[[nodiscard]] constexpr std::string_view nccl_name_of(Algorithm algorithm) {
    return row_of(algorithm).nccl.name.empty() ? row_of(algorithm).name : row_of(algorithm).nccl.name;
}
[[nodiscard]] std::optional<Algorithm> algorithm_named(std::string_view name);
/// The algorithm with this name in NCCL's tuner.
[[nodiscard]] std::optional<Algorithm> nccl_algorithm_named(std::string_view name);

/// Why this algorithm cannot run this collective in this group; empty if it can.
[[nodiscard]] std::string why_not(Algorithm algorithm, program::CommKind kind, const Group& group);
/// Whether the algorithm runs the collective in some group.
[[nodiscard]] constexpr bool runs(Algorithm algorithm, program::CommKind kind) {
    return has(row_of(algorithm).kinds | row_of(algorithm).manner.kinds_on_one_node, kind);
}

}  // namespace orrery::sim::algorithms
