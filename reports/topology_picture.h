// A drawing of a cluster: nodes with their components, and the tiers of the fabric above them. In large clusters only
// the first nodes and switches are drawn, and the rest is counted.
#pragma once

#include <string>

#include "topologies/cluster.h"

namespace orrery::reports {

/// For graphviz: `dot -Tsvg`.
[[nodiscard]] std::string topology_dot(const topologies::Cluster& cluster);
/// A self-contained SVG without scripts or external references, below 300 kB for any cluster.
[[nodiscard]] std::string topology_svg(const topologies::Cluster& cluster);

}  // namespace orrery::reports
