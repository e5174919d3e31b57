// Clusters from what foreign files describe: a node, a fabric, or both.
#pragma once

#include <cstdint>
#include <string>

#include "topologies/cluster_spec.h"
#include "topologies/importers/fabric_description.h"
#include "topologies/importers/node_description.h"

namespace orrery::topologies {

/// NVLink where the file does not tell (static cloud files).
enum class NvlinkChoice : std::uint8_t {
    by_file,   // what the file says; where it says nothing, NVSwitches as the GPU's usual node has them
    switched,  // NVSwitches, whatever the file says
    none,      // GPUs reach each other over PCIe only
};

/// What a file does not say and a user knows; empty: by the file.
struct ImportOptions {
    std::string device;  // device_names()
    std::string nic;     // link_names(): one rail of a node
    NvlinkChoice nvlink = NvlinkChoice::by_file;
};

/// The device's name by its PCI id; "" when the file does not say which GPU it is.
[[nodiscard]] std::string device_of(const NodeDescription& node);

/// The node as a cluster of one node, with a rail-optimised fabric of the usual size where it has NICs. Every
/// assumption and every part that a ClusterSpec does not hold is a note. Throws InputError when the GPU is neither told
/// nor given, or contradicts the file.
[[nodiscard]] ClusterSpec cluster_of_node(const NodeDescription& node, const std::string& file,
                                          const ImportOptions& options, Notes& notes);

/// Replaces the cluster's fabric, and its number of nodes, by what the description says; what it leaves open (cables,
/// in Slurm's files) is taken as non-blocking, with a note.
void set_fabric(ClusterSpec& cluster, const FabricDescription& fabric, const std::string& file, Notes& notes);

}  // namespace orrery::topologies
