// A fabric as Slurm, InfiniBand tools or topograph describe it: switches, the nodes below them, and blocks of nodes
// that NVLink joins. Plain data, before any of it becomes a cluster.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topologies/importers/foreign_text.h"

namespace orrery::topologies {

struct FabricSwitch {
    std::string name;
    std::vector<std::string> nodes;          // hosts below it, in the order of the file
    std::vector<std::int64_t> switches;      // indices of the switches below it (a tree), or linked to it (measured)
    std::vector<std::int64_t> switch_links;  // cables to each of them; 1 where the format does not count them
    std::int64_t other_ports = 0;            // adapters below it that do not name their host
};

/// Nodes that share an NVLink domain (Slurm's block, topograph's accelerator domain).
struct FabricBlock {
    std::string name;
    std::vector<std::string> nodes;
};

enum class FabricLayout : std::uint8_t {
    tree,   // switches in tiers
    block,  // blocks only: nothing is said about switches
    ring,
    torus,
    flat,  // nodes without any structure
};

struct FabricDescription {
    std::string format;  // "Slurm topology.conf", "ibnetdiscover", ...
    std::string name;    // of the topology, where the format names it
    FabricLayout layout = FabricLayout::tree;
    std::vector<FabricSwitch> switches;
    std::vector<FabricBlock> blocks;
    std::vector<std::int64_t> block_sizes;       // that Slurm allocates in
    std::vector<std::string> nodes;              // each once, in the order of the file
    std::vector<std::int64_t> torus_dimensions;  // torus only
    double link_gb_per_s_per_direction = 0;      // of one cable; 0: the format does not say
    bool counts_cables = false;                  // switch_links are what is there
    Notes notes;
};

/// Checks that the switches form trees (every switch below at most one other, no cycle, every node below one switch)
/// and fills `nodes`. Throws InputError naming the file and the switch.
void finish_tree(FabricDescription& fabric, const std::string& file);
/// Tier of each switch: 1 where none is below it, else one more than the highest below it. No switch may stand below
/// itself (ORRERY_CHECK).
[[nodiscard]] std::vector<std::int64_t> tiers_of(const FabricDescription& fabric);

}  // namespace orrery::topologies
