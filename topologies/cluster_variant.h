// A variant of a preset: another device, other links, or another number of devices and NICs per node. Published
// training runs describe their clusters this way.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "topologies/cluster_spec.h"

namespace orrery::topologies {

/// Empty members keep the base's value.
struct ClusterVariant {
    std::string base;        // preset, or path of a cluster file; a cluster of GPUs
    std::string device;      // device_names(); must have the base's compute capability, which links and LL limits fit
    std::string intra_node;  // link_names(); so are the next two
    std::string nic;
    std::string host_link;
    std::optional<std::int64_t> devices_per_node;  // the devices that NVLink joins; host memory changes in proportion
    std::optional<std::int64_t> nics_per_node;     // a divisor of devices_per_node; unset: the base's ratio to devices
    std::optional<std::int64_t> nodes_per_scalable_unit;
    bool operator==(const ClusterVariant&) const = default;
};

/// The variant for `devices` devices, under load_cluster's conditions. Its name says what differs from the base:
/// "dgx-a100[nic=omnipath-100,nics_per_node=4]". Throws InputError naming the wrong member and what is allowed.
[[nodiscard]] ClusterSpec make_cluster(const ClusterVariant& variant, std::int64_t devices);

}  // namespace orrery::topologies
