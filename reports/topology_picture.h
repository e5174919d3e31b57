// A cluster drawn: nodes with what stands in them, and the tiers of the fabric above. At scale only the first nodes and
// switches are drawn, and the rest is counted.
#pragma once

#include <string>

#include "topologies/cluster.h"

namespace orrery::reports {

/// For graphviz: `dot -Tsvg`.
[[nodiscard]] std::string topology_dot(const topologies::Cluster& cluster);
/// Well-formed XML by itself, without scripts or outside references; below 300 kB whatever the cluster.
[[nodiscard]] std::string topology_svg(const topologies::Cluster& cluster);

}  // namespace orrery::reports
