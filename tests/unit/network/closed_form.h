// Time of each algorithm on an idle uniform network, in which every rank has one port of the same speed in each
// direction and every transfer the same latency: T = steps * alpha + factor * S * beta.
//
// With n ranks = k nodes * m members, C chunks, p the largest power of two <= n, r = n - p, L = log2 p, [r] = 1 where
// r > 0, and W = sum over j < L of (2^j + min(2^j, r)) / n, which is (n - 1) / n where r = 0:
//
//   algorithm           collective               steps                    factor
//   ring                all-reduce               2 (n - 1)                2 (n - 1) / n                    [1]
//                       others                   n - 1                    (n - 1) / n
//   neighbor_exchange   all-gather               n / 2                    (n - 1) / n                      [2]
//   chain               broadcast, reduce        n - 2 + C                (n - 2 + C) / C                  [1]
//   binary_tree         broadcast, reduce        d - 1 + C                (2 (d - 1 + C) - [n = 2^d]) / C; n = 2: 1
//                                                d = floor(log2 n)
//   binomial_tree       broadcast, reduce        ceil(log2 n)             ceil(log2 n)                     [1]
//                       scatter, gather          ceil(log2 n)             (n - 1) / n
//                       all-reduce               reduce, then broadcast; reduce-scatter: reduce, then scatter
//   knomial_tree        broadcast, reduce        l = ceil(log4 n)         3 (l - 1) + floor((n - 1) / 4^(l - 1))
//   double_binary_tree  all-reduce               2 (m - 1 + ceil(log2 k)) (2 (m - 1) + f) / m              [3]
//                                                f = 0, 1, 1.5, 2 for k = 1, 2, 3, more
//                       broadcast, reduce        m - 1 + ceil(log2 k)     2 where k > 1 and m > 1, else 1
//   halving_doubling    all-reduce               2 L + 2 [r]              2 (p - 1) / p + 2 [r]            [1]
//                       reduce-scatter, all-gather  L + 2 [r]             W + [r] (1 + 1 / n)
//                       broadcast                binomial scatter, then all-gather; reduce: the reverse
//   recursive_doubling  all-reduce               L + 2 [r]                L + 2 [r]                        [1]
//   bruck               all-gather               ceil(log2 n)             (n - 1) / n                      [4]
//                       all-to-all               ceil(log2 n)             (binary ones in 1, 2, ..., n - 1) / n
//   pat                 all-gather, reduce-scatter  C ceil(log2 n)        (n - 1) / n                      [5]
//   bcube               all-reduce               2 * prime factors of n   2 (n - 1) / n                    [6]
//   direct              all-reduce               2                        2 (n - 1) / n
//                       all-gather, reduce-scatter, all-to-all, scatter, gather   1, (n - 1) / n
//                       broadcast, reduce        1                        n - 1
//                       exchange, send           1                        1
//   pairwise            reduce-scatter, all-to-all  n - 1                 (n - 1) / n                      [1]
//   hierarchical        all-reduce               2 (m + k - 2)            2 (n - 1) / n
//                       all-gather, reduce-scatter  m + k - 2             (n - 1) / n
//                       all-to-all               [k > 1] + [m > 1]        (k - 1) / k + (m - 1) / m        [8]
//   nvls                all-reduce               2 + 2 ceil(log2 k)       1 + 1 / m + f / m                [7]
//                       others (k = 1)           1                        1
//   collnet             all-reduce               m = 1: 1; else 3         (2 (m - 1) + 1) / m              [7]
//
// Streamed algorithms (Manner::streamed) pay their steps once and then transfer everything at the speed of the busiest
// port; all others run in rounds. A transfer to or from a switch is half a step.
//
// Sources: [1] Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH" (2005), and
// Chan et al., "Collective communication: theory, practice, and experience" (2007); [2] Chen et al., "Performance
// evaluation of allgather algorithms on terascale Linux cluster with fast Ethernet" (2005); [3] Sanders, Speck, Träff
// (2009), with NCCL's chains inside nodes; [4] Bruck et al., "Efficient algorithms for all-to-all communications in
// multiport message-passing systems" (1997); [5] Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter
// operations at scale" (2025); [6] Guo et al., "BCube" (2009), as Gloo uses it; [7] counted on the schedule: each
// device sends its data once to the switch that reduces and receives the multicast once; [8] counted: first
// to the members of the same index on the other nodes, as DeepEP sends.
#pragma once

#include <cstdint>

#include "sim/network/algorithms/algorithm.h"

namespace orrery::sim::algorithms {

struct ClosedForm {
    double steps = 0;
    double factor = 0;
    /// alpha: time of one step; beta: seconds per byte of one port.
    [[nodiscard]] double seconds(double bytes, double alpha_seconds, double beta_seconds) const {
        return steps * alpha_seconds + factor * bytes * beta_seconds;
    }
};

/// For a group with the same number of members on each node. Throws BugError for other groups or if why_not gives a
/// reason. A group of one takes no time.
[[nodiscard]] ClosedForm closed_form(Algorithm algorithm, program::CommKind kind, const Group& group,
                                     std::int64_t chunks = 1);

}  // namespace orrery::sim::algorithms
