// Which algorithm a library for CPU ranks runs.
#pragma once

#include <cstdint>

#include "sim/network/algorithms/algorithm.h"
#include "topologies/cluster_spec.h"

namespace orrery::sim::algorithms {

struct LibraryChoice {
    Algorithm algorithm{};
    std::int64_t chunks = 1;
};

/// openmpi: the fixed decision rules of the tuned module, by the number of ranks and the message (v4.1.4, the same in
///   v5.0.9: ompi/mca/coll/tuned/coll_tuned_decision_fixed.c, for commutative operations). Its reduce-then-broadcast
///   stands as binomial_tree, its split binary tree and in-order tree as binary_tree, its two-rank algorithms as
///   direct, its butterfly as halving_doubling; chains and trees run unsegmented, as those rules ask.
/// gloo: what its functions run when not told otherwise (main of 16 May 2025: gloo/allreduce.cc and its neighbours):
///   rings for all-reduce, all-gather and reduce-scatter, a binomial tree for broadcast, a ring and then a gathering at
///   the root for reduce (which has halving_doubling's volume, and stands as that), the rest directly. Its other
///   choices, halving_doubling and bcube, are for programs that name them.
/// orrery: what the executor's transport runs (exec/transport/collective.h): rings, but for all-reduces of at most 64
/// KiB
///   among a power of two of ranks; for broadcast and reduce a binomial tree up to 128 KiB, then a chain in pieces of
///   128 KiB to 1 MiB; the rest directly.
/// BugError for a group of one, which runs nothing.
[[nodiscard]] LibraryChoice library_choice(topologies::CollectiveLibrary library, program::CommKind kind,
                                           std::int64_t ranks, std::int64_t bytes);

/// What a step takes in the library, besides the latency of the links: assumptions, for small messages of one thread.
[[nodiscard]] double step_seconds(topologies::CollectiveLibrary library);

}  // namespace orrery::sim::algorithms
