// Transfers of a collective, round by round, for algorithms with few enough of them. tests/unit/network/schedules has
// those of the other algorithms, with which the tests compare link loads and closed forms.
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

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <vector>

#include "sim/network/algorithms/algorithm.h"

namespace orrery::sim::algorithms {

/// ceil(log2 n)
[[nodiscard]] inline std::int64_t log2_ceil(std::int64_t n) {
    return static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
}

struct Slice {
    std::int64_t offset = 0;
    std::int64_t bytes = 0;
};
/// Parts [first, last) of `count` parts of the slice, together. The first bytes % count parts are one byte longer than
/// the others.
[[nodiscard]] inline Slice parts_of(Slice whole, std::int64_t first, std::int64_t last, std::int64_t count) {
    const std::int64_t each = whole.bytes / count;
    const std::int64_t longer = whole.bytes % count;
    const auto start = [&](std::int64_t index) { return each * index + std::min(index, longer); };
    return {whole.offset + start(first), start(last) - start(first)};
}
[[nodiscard]] inline Slice part_of(Slice whole, std::int64_t index, std::int64_t count) {
    return parts_of(whole, index, index + 1, count);
}

/// Ranks are 0 … n - 1; the switches that reduce and multicast come after them. A switch holds nothing at first.
using Party = std::int64_t;

struct Transfer {
    Party from = 0, to = 0;
    Slice slice;
    bool reduces = false;  // the receiver adds the data to its slice; otherwise the data replace it
    std::int64_t channel = 0;
};
using Visit = std::function<void(const Transfer&)>;

/// A sequence of rounds; `sends` visits the transfers that a party sends in one of them. Slices may be empty. No
/// transfer goes to its sender.
struct Stage {
    std::int64_t rounds = 0;
    std::function<void(std::int64_t round, Party party, const Visit& visit)> sends;
};

/// A collective of a group, which must outlive the stages.
struct Task {
    const Group& group;
    program::CommKind kind{};
    std::int64_t bytes = 0;  // message size S (program::CommKind)
    std::int64_t root = 0;   // broadcast, reduce, scatter, gather
    [[nodiscard]] std::int64_t ranks() const { return group.ranks(); }
    [[nodiscard]] Slice message() const { return {0, bytes}; }
    /// Labels are ranks rotated so that the root has label 0.
    [[nodiscard]] std::int64_t rank_of(std::int64_t label) const { return (label + root) % ranks(); }
    [[nodiscard]] std::int64_t label_of(std::int64_t rank) const { return (rank - root + ranks()) % ranks(); }
};

/// Prime factors of n, ascending.
[[nodiscard]] std::vector<std::int64_t> prime_factors(std::int64_t n);

}  // namespace orrery::sim::algorithms
