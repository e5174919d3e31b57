// Devices and links known by name. Cluster presets and variants refer to them, so that each figure is stated once.
#pragma once

#include <string>
#include <vector>

#include "topologies/profile.h"

namespace orrery::topologies {

/// A device by name ("v100-sxm-32gb", "h100-sxm-80gb", ...), or a variant of one by device_variant's rules
/// ("h100-sxm-96gb-500w"). Throws InputError listing the known names.
[[nodiscard]] DeviceProfile load_device(const std::string& name);
[[nodiscard]] std::vector<std::string> device_names();

/// A link by name ("nvlink3", "infiniband-hdr", "efa-400", "pcie-gen4-x16", ...). A network link of another rate in
/// Gb/s ("roce-25", "infiniband-56") takes its other figures from the link of the same kind nearest in rate. Throws
/// InputError listing the known names.
///
/// The bandwidth is nominal; the efficiency is the fraction that remains after protocol overhead or in a benchmark of
/// the link alone. Training jobs reach less, depending on how they use the link; no figure here was fitted to training
/// runs.
[[nodiscard]] LinkProfile load_link(const std::string& name);
[[nodiscard]] std::vector<std::string> link_names();
/// The links that join nodes and can therefore be a NIC's; the others join devices within a node.
[[nodiscard]] std::vector<std::string> nic_names();
/// A link that joins nodes, by name; throws InputError listing nic_names() for any other link.
[[nodiscard]] LinkProfile load_nic(const std::string& name);

}  // namespace orrery::topologies
