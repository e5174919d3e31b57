// Builds clusters from foreign files that describe a node, a fabric, or both.
#pragma once

#include <cstdint>
#include <string>

#include "topologies/cluster_spec.h"
#include "topologies/importers/fabric_description.h"
#include "topologies/importers/node_description.h"

namespace orrery::topologies {

/// How the GPUs are joined; needed for files that do not describe NVLink (static cloud files).
enum class NvlinkChoice : std::uint8_t {
    by_file,   // as the file says; if it does not, NVSwitches as in the usual node with this GPU
    switched,  // NVSwitches, whatever the file says
    none,      // GPUs reach each other over PCIe only
};

/// Facts that the user knows and the file does not state; empty: from the file.
struct ImportOptions {
    std::string device;  // device_names()
    std::string nic;     // nic_names(): one rail of a node
    NvlinkChoice nvlink = NvlinkChoice::by_file;
};

/// The device's name by its PCI id; "" when the file does not identify the GPU.
[[nodiscard]] std::string device_of(const NodeDescription& node);

/// The node as a cluster of one node, with a rail-optimised fabric of 32 nodes per scalable unit if it has NICs. A note
/// records each assumption and each part that a ClusterSpec cannot hold. Throws InputError when neither the file nor
/// the options identify the GPU, or when they contradict each other.
[[nodiscard]] ClusterSpec cluster_of_node(const NodeDescription& node, const std::string& file,
                                          const ImportOptions& options, Notes& notes);

/// Replaces the cluster's fabric and number of nodes by those of the description. If it does not count cables (Slurm's
/// files), the fabric is assumed to be non-blocking, with a note.
void set_fabric(ClusterSpec& cluster, const FabricDescription& fabric, const std::string& file, Notes& notes);

}  // namespace orrery::topologies
