// Bisection bandwidth of a cluster's fabric.
#pragma once

#include <vector>

#include "core/units.h"
#include "topologies/cluster.h"

namespace orrery::topologies {

/// Nominal bandwidth, in one direction, between the NICs of the first half of the nodes (rounded down) and the NICs of
/// the rest. On a full torus: the least over the halvings along each dimension of even length. Failed links count as 0,
/// degraded links with their reduced bandwidth. A Clos without overrides is solved by dynamic programming: the spines
/// of one pod carry equal load, so they collapse into one vertex and the cores into another, and the minimum cut is
/// that of a tree. Other fabrics use a general minimum cut. Throws InputError for a cluster of one node.
[[nodiscard]] BytesPerSecond bisection_bandwidth(const Cluster& cluster);

/// Nominal bandwidth, in one direction, from the nodes marked in `first` to the others: the minimum cut of the graph of
/// fabric switches.
[[nodiscard]] BytesPerSecond cut_bandwidth(const Cluster& cluster, const std::vector<bool>& first);

/// Whether links between switches may be oversubscribed while no NIC is: in a Clos with an oversubscribed tier, on
/// dragonflies and tori, with routes chosen independently of each other (Spread::destination, hash), and with
/// overridden links. A non-blocking Clos is assumed to spread traffic perfectly, as adaptive routing does.
[[nodiscard]] bool may_block(const Cluster& cluster);

}  // namespace orrery::topologies
