// The stages of which schedule.cpp puts schedules together.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "sim/network/algorithms/schedule.h"

namespace orrery::sim::algorithms {

using Stage = Schedule::Stage;
using Stages = std::vector<Stage>;

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
    /// Which rank has this label when the root has label 0, and back.
    [[nodiscard]] std::int64_t rank_of(std::int64_t label) const { return (label + collective.root) % ranks(); }
    [[nodiscard]] std::int64_t label_of(std::int64_t rank) const {
        return (rank - collective.root + ranks()) % ranks();
    }
};

[[nodiscard]] Stages ring_stages(const Task& task);
[[nodiscard]] Stages neighbor_exchange_stages(const Task& task);
[[nodiscard]] Stages hierarchical_stages(const Task& task);
[[nodiscard]] Stages chain_stages(const Task& task);
[[nodiscard]] Stages binary_tree_stages(const Task& task);
/// radix 2: binomial
[[nodiscard]] Stages knomial_stages(const Task& task, std::int64_t radix);
[[nodiscard]] Stages double_binary_tree_stages(const Task& task);
[[nodiscard]] Stages halving_doubling_stages(const Task& task);
[[nodiscard]] Stages recursive_doubling_stages(const Task& task);
[[nodiscard]] Stages bruck_stages(const Task& task);
[[nodiscard]] Stages pat_stages(const Task& task);
[[nodiscard]] Stages bcube_stages(const Task& task);
[[nodiscard]] Stages direct_stages(const Task& task);
[[nodiscard]] Stages pairwise_stages(const Task& task);
[[nodiscard]] Stages nvls_stages(const Task& task);
[[nodiscard]] Stages collnet_stages(const Task& task);

/// The member at which ring `channel` enters each node (see ring_order); it leaves one member before it, against the
/// direction in which it visits the node's members.
[[nodiscard]] std::vector<std::int64_t> ring_entries(const Group& group, std::int64_t channel);
[[nodiscard]] inline std::int64_t ring_direction(std::int64_t node) {
    return node % 2 == 0 ? 1 : -1;
}

/// Prime factors of n, ascending.
[[nodiscard]] std::vector<std::int64_t> prime_factors(std::int64_t n);

/// Double binary trees between the nodes for part j of `whole` on each rail j of an even group (no chains inside the
/// nodes): what nvls runs between its nodes.
[[nodiscard]] Stage rail_tree_stage(const Group& group, Slice whole, std::int64_t chunks);

}  // namespace orrery::sim::algorithms
