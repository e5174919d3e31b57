// The parts of `orrery.cluster/1` that say how a cluster is joined: fabric, node inside, routing, overrides, other
// devices. Private to this room.
#pragma once

#include <string>

#include "topologies/cluster_spec.h"
#include "topologies/profile_json.h"

namespace orrery::topologies {

inline constexpr IntegerRange kNodeCounts{1, 1 << 20};

/// A link or device in full, or the name of one in the catalogue.
[[nodiscard]] LinkProfile named_link(const JsonReader& reader, const std::string& key);
[[nodiscard]] DeviceProfile named_device(const JsonReader& reader, const std::string& key);

/// Needs nodes, devices_per_node, nics_per_node and node_switches of the cluster.
void read_fabric(const JsonReader& reader, ClusterSpec& cluster);
/// Keys that hold what they hold by default are left out.
void add_fabric(Json& json, const ClusterSpec& cluster);

}  // namespace orrery::topologies
