// The algorithm that a library for CPU ranks chooses.
#pragma once

#include <cstdint>

#include "sim/network/algorithms/algorithm.h"
#include "topologies/cluster_spec.h"

namespace orrery::sim::algorithms {

struct LibraryChoice {
    Algorithm algorithm{};
    std::int64_t chunks = 1;
};

/// openmpi: the fixed decision rules of the tuned module, by the number of ranks and the message size (v4.1.4, the same
///   in v5.0.9: ompi/mca/coll/tuned/coll_tuned_decision_fixed.c, for commutative operations). Its algorithms are
///   mapped: reduce-then-broadcast to binomial_tree, split binary tree and in-order tree to binary_tree, two-rank
///   algorithms to direct, butterfly to halving_doubling. Chains and trees run unsegmented, as those rules require.
/// gloo: the defaults of its functions (main of 16 May 2025: gloo/allreduce.cc and its neighbours): rings for
///   all-reduce, all-gather and reduce-scatter, a binomial tree for broadcast, the rest directly. Its reduce is a ring
///   and a gather at the root, which has the volume of halving_doubling and is mapped to it. Its other algorithms,
///   halving_doubling and bcube, run only where programs name them.
/// orrery: the executor's transport (exec/transport/collective.h): rings, except for all-reduces of at most 64 KiB
/// among
///   a power of two of ranks, which double or halve and double; for broadcast and reduce a binomial tree up to 128 KiB,
///   then a chain in pieces of 128 KiB to 1 MiB; the rest directly.
/// Throws BugError for a group of one, which has nothing to run.
[[nodiscard]] LibraryChoice library_choice(topologies::CollectiveLibrary library, program::CommKind kind,
                                           std::int64_t ranks, std::int64_t bytes);

/// Overhead of one step in the library, in addition to the latency of the links. Assumed values for small messages and
/// one thread.
[[nodiscard]] double step_seconds(topologies::CollectiveLibrary library);

}  // namespace orrery::sim::algorithms
