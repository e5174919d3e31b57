// What a cluster's fabric carries from one half of its nodes to the other.
#pragma once

#include <vector>

#include "core/units.h"
#include "topologies/cluster.h"

namespace orrery::topologies {

/// Nominal, one way, between the NICs of the first half of the nodes (rounded down) and those of the rest; of a full
/// torus the least over the halvings along each dimension of even length. Failed and degraded links count as they are.
/// A Clos without overrides is solved in closed form: its spines of one pod carry alike, so that they and the cores are
/// one vertex each and the least cut of the tree that is left is found by dynamic programming. All else is a minimum
/// cut. Throws InputError for a cluster of one node.
[[nodiscard]] BytesPerSecond bisection_bandwidth(const Cluster& cluster);

/// The same between nodes for which `first` holds and the others, by the minimum cut of the switches' graph.
[[nodiscard]] BytesPerSecond cut_bandwidth(const Cluster& cluster, const std::vector<bool>& first);

/// Whether links between switches may have to carry more than they can while no NIC does: where a Clos narrows, on
/// dragonflies and tori, where routes are chosen regardless of each other (Spread::destination, hash), and where links
/// are overridden. A full Clos is taken to spread traffic perfectly, as adaptive routing does.
[[nodiscard]] bool may_block(const Cluster& cluster);

}  // namespace orrery::topologies
