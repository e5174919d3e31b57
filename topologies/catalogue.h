// Devices and links known by name. Presets and variants of clusters are put together from them, so that a figure stands
// in one place.
#pragma once

#include <string>
#include <vector>

#include "topologies/profile.h"

namespace orrery::topologies {

/// "v100-sxm-32gb", "h100-sxm-80gb", ..., or a variant of one by device_variant's rules ("h100-sxm-96gb-500w"); throws
/// InputError with the names that exist.
[[nodiscard]] DeviceProfile load_device(const std::string& name);
[[nodiscard]] std::vector<std::string> device_names();

/// "nvlink3", "infiniband-hdr", "efa-400", "pcie-gen4-x16", ..., or one of another rate in Gb/s ("roce-25",
/// "infiniband-56"), with all else as the nearest of its kind; throws InputError with the names that exist.
///
/// The bandwidth is nominal, the efficiency what the protocol or a benchmark of the link alone leaves of it. What
/// training jobs reach is less and follows from how they use the link; no figure here was fitted to training runs.
[[nodiscard]] LinkProfile load_link(const std::string& name);
[[nodiscard]] std::vector<std::string> link_names();
/// Those of them that join nodes, and so can be NICs'; the others join devices of a node.
[[nodiscard]] std::vector<std::string> nic_names();
/// A link that joins nodes, by name; throws InputError with nic_names() for one that does not.
[[nodiscard]] LinkProfile load_nic(const std::string& name);

}  // namespace orrery::topologies
