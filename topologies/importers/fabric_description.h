// A fabric as described by Slurm, InfiniBand tools or topograph: switches, the nodes below them, and blocks of nodes
// joined by NVLink. Plain data, not yet a cluster.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topologies/importers/foreign_text.h"

namespace orrery::topologies {

struct FabricSwitch {
    std::string name;
    std::vector<std::string> nodes;          // hosts below it, in the order of the file
    std::vector<std::int64_t> switches;      // indices of the switches below it
    std::vector<std::int64_t> switch_links;  // cables to each of these switches; 1 if the format does not count them
    std::int64_t other_ports = 0;            // adapters below it that do not name their host
};

/// Nodes that share an NVLink domain (Slurm's block, topograph's accelerator domain).
struct FabricBlock {
    std::string name;
    std::vector<std::string> nodes;
};

enum class FabricLayout : std::uint8_t {
    tree,   // switches in tiers
    block,  // blocks only, no switches
    ring,
    torus,
    flat,  // nodes without any structure
};

struct FabricDescription {
    std::string format;  // "Slurm topology.conf", "ibnetdiscover", ...
    std::string name;    // of the topology; "" if the format has none
    FabricLayout layout = FabricLayout::tree;
    std::vector<FabricSwitch> switches;
    std::vector<FabricBlock> blocks;
    std::vector<std::int64_t> block_sizes;       // in which Slurm allocates nodes
    std::vector<std::string> nodes;              // each once, in the order of the file
    std::vector<std::int64_t> torus_dimensions;  // torus only
    double link_gb_per_s_per_direction = 0;      // of one cable; 0: not stated
    bool counts_cables = false;                  // whether switch_links are counts from the file
    Notes notes;
};

/// Checks that the switches form trees (each switch has at most one parent, no cycle, each node is below one switch)
/// and fills `nodes`. Throws InputError naming the file and the switch.
void finish_tree(FabricDescription& fabric, const std::string& file);
/// Tier of each switch: 1 if no switch is below it, else one more than the highest tier below it. The switches must
/// have no cycle (ORRERY_CHECK).
[[nodiscard]] std::vector<std::int64_t> tiers_of(const FabricDescription& fabric);

}  // namespace orrery::topologies
