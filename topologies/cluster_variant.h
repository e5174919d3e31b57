// A cluster that is put together rather than listed: a preset with another device, other links or another number of
// devices and NICs a node. Published training runs are described so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "topologies/cluster_spec.h"

namespace orrery::topologies {

/// What is empty stays as the base has it.
struct ClusterVariant {
    std::string base;        // preset, or path of a cluster file; of GPUs
    std::string device;      // device_names(); of the base's compute capability, since links and LL ceilings are its
    std::string intra_node;  // link_names() here and below
    std::string nic;
    std::string host_link;
    std::optional<std::int64_t> devices_per_node;  // the devices that NVLink joins; host memory changes in proportion
    std::optional<std::int64_t> nics_per_node;     // a divisor of devices_per_node; unset: as many a device as the base
    std::optional<std::int64_t> nodes_per_scalable_unit;
    bool operator==(const ClusterVariant&) const = default;
};

/// The variant for `devices` devices, under load_cluster's conditions. Its name says what differs from the base:
/// "dgx-a100[nic=omnipath-100,nics_per_node=4]". Throws InputError naming the member that is wrong, and what is
/// allowed.
[[nodiscard]] ClusterSpec make_cluster(const ClusterVariant& variant, std::int64_t devices);

}  // namespace orrery::topologies
