// The parts of `orrery.cluster/1` that describe how a cluster is connected: fabric, inside of a node, routing,
// overrides, other devices. Private to this folder.
#pragma once

#include <string>

#include "topologies/cluster_spec.h"
#include "topologies/profile_json.h"

namespace orrery::topologies {

inline constexpr IntegerRange kNodeCounts{1, 1 << 20};

/// A link or device: either an object with its figures, or a name in the catalogue.
[[nodiscard]] LinkProfile named_link(const JsonReader& reader, const std::string& key);
[[nodiscard]] DeviceProfile named_device(const JsonReader& reader, const std::string& key);

/// Needs the cluster's nodes, devices_per_node, nics_per_node and node_switches to be set.
void read_fabric(const JsonReader& reader, ClusterSpec& cluster);
/// Leaves out keys with default values.
void add_fabric(Json& json, const ClusterSpec& cluster);

}  // namespace orrery::topologies
