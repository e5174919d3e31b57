// Shared by the stages of all algorithms; algorithm.h lists the functions that build stages.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "sim/network/algorithms/schedule.h"

namespace orrery::sim::algorithms {

/// ceil(log2 n)
[[nodiscard]] inline std::int64_t log2_ceil(std::int64_t n) {
    return static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
}

struct Task {
    Collective collective;
    const Group& group;
    std::int64_t chunks = 1;
    [[nodiscard]] std::int64_t ranks() const { return group.ranks(); }
    [[nodiscard]] Slice message() const { return {0, collective.bytes}; }
    /// Labels are ranks rotated so that the root has label 0.
    [[nodiscard]] std::int64_t rank_of(std::int64_t label) const { return (label + collective.root) % ranks(); }
    [[nodiscard]] std::int64_t label_of(std::int64_t rank) const {
        return (rank - collective.root + ranks()) % ranks();
    }
};

/// The member at which ring `channel` enters each node (ring_order). The ring leaves at the member just before the
/// entry in its direction of travel.
[[nodiscard]] std::vector<std::int64_t> ring_entries(const Group& group, std::int64_t channel);
[[nodiscard]] inline std::int64_t ring_direction(std::int64_t node) {
    return node % 2 == 0 ? 1 : -1;
}

/// Prime factors of n, ascending.
[[nodiscard]] std::vector<std::int64_t> prime_factors(std::int64_t n);

/// Double binary trees between the nodes of an even group, without chains inside the nodes: rail j carries part j of
/// `whole`. NVLS uses it between nodes.
[[nodiscard]] Stage rail_tree_stage(const Group& group, Slice whole, std::int64_t chunks);

}  // namespace orrery::sim::algorithms
