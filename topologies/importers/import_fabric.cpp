// Translates a FabricDescription into the fabric of a ClusterSpec.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "core/error.h"
#include "topologies/catalogue.h"
#include "topologies/importers/import_cluster.h"

namespace orrery::topologies {
namespace {

constexpr std::int64_t kMostSwitchLinks = 1 << 16;  // limit of cluster files

/// A tree reduced to what a ClusterSpec can hold: equal leaves and equal pods.
struct TreeShape {
    std::int64_t leaves = 0, tiers = 0;
    std::int64_t least_nodes = 0, most_nodes = 0;      // below a leaf, including adapters that do not name their host
    std::int64_t least_uplinks = 0, most_uplinks = 0;  // of a leaf
    std::int64_t leaves_per_pod = 0, uplinks_per_spine = 0;
    bool on_rails = false;    // a node's NICs are connected to different leaves
    double ports_a_node = 0;  // mean over the nodes with a name
};

void widen(std::int64_t& least, std::int64_t& most, std::int64_t value, bool first) {
    least = first ? value : std::min(least, value);
    most = std::max(most, value);
}

TreeShape shape_of(const FabricDescription& fabric) {
    TreeShape shape;
    const std::vector<std::int64_t> tier = tiers_of(fabric);
    std::vector<std::int64_t> uplinks(fabric.switches.size());
    for (const FabricSwitch& one : fabric.switches) {
        for (std::size_t i = 0; i < one.switches.size(); ++i) {
            uplinks[static_cast<std::size_t>(one.switches[i])] += one.switch_links[i];
        }
    }
    std::map<std::string, std::int64_t> leaves_of_node;
    std::int64_t ports = 0;
    for (std::size_t i = 0; i < fabric.switches.size(); ++i) {
        const FabricSwitch& one = fabric.switches[i];
        shape.tiers = std::max(shape.tiers, tier[i]);
        if (tier[i] == 2) {
            shape.leaves_per_pod = std::max(shape.leaves_per_pod, static_cast<std::int64_t>(one.switches.size()));
            shape.uplinks_per_spine = std::max(shape.uplinks_per_spine, uplinks[i]);
        }
        ports += static_cast<std::int64_t>(one.nodes.size());
        const std::set<std::string> nodes(one.nodes.begin(), one.nodes.end());
        for (const std::string& node : nodes) ++leaves_of_node[node];
        const std::int64_t below = static_cast<std::int64_t>(nodes.size()) + one.other_ports;
        if (below == 0) continue;
        widen(shape.least_nodes, shape.most_nodes, below, shape.leaves == 0);
        widen(shape.least_uplinks, shape.most_uplinks, uplinks[i], shape.leaves == 0);
        ++shape.leaves;
    }
    const auto spread =
        std::count_if(leaves_of_node.begin(), leaves_of_node.end(), [](const auto& one) { return one.second > 1; });
    shape.on_rails = 2 * spread > static_cast<std::ptrdiff_t>(leaves_of_node.size());
    if (!leaves_of_node.empty()) {
        shape.ports_a_node = static_cast<double>(ports) / static_cast<double>(leaves_of_node.size());
    }
    return shape;
}

std::string from_to(std::int64_t least, std::int64_t most) {
    return least == most ? std::to_string(most) : std::to_string(least) + " to " + std::to_string(most);
}

void set_rails(ClusterSpec& cluster, const FabricDescription& fabric, const TreeShape& shape, Notes& notes) {
    cluster.fabric = FabricKind::rail_optimised;
    cluster.nodes_per_scalable_unit = shape.most_nodes;
    const double below = static_cast<double>(shape.most_nodes), above = static_cast<double>(shape.least_uplinks);
    if (fabric.counts_cables && above > 0 && above < below) cluster.fabric_shape.oversubscription = {below / above};
    if (shape.tiers > 2) notes.add("tiers above the second are left out: spines join all scalable units");
}

void set_fat_tree(ClusterSpec& cluster, const FabricDescription& fabric, const TreeShape& shape,
                  const std::string& file, Notes& notes) {
    FabricShape& tree = cluster.fabric_shape;
    cluster.fabric = FabricKind::fat_tree;
    tree.levels = std::min<std::int64_t>(shape.tiers, 3);
    tree.nodes_per_leaf = shape.most_nodes;
    // In a ClusterSpec's fat tree all NICs of a node are connected to one leaf, and uplinks are as fast as NICs.
    const std::int64_t non_blocking = shape.most_nodes * cluster.nics_per_node;
    tree.uplinks_per_leaf = fabric.counts_cables ? shape.most_uplinks : non_blocking;
    if (tree.levels == 3) {
        tree.leaves_per_pod = shape.leaves_per_pod;
        tree.uplinks_per_spine = fabric.counts_cables ? shape.uplinks_per_spine : shape.leaves_per_pod;
    }
    if (!fabric.counts_cables) notes.add("the file does not count cables: switches are taken as non-blocking");
    if (shape.tiers > 3) notes.add(std::to_string(shape.tiers) + " tiers: those above the third are left out");
    for (const std::int64_t links : {tree.nodes_per_leaf, tree.uplinks_per_leaf, tree.leaves_per_pod}) {
        if (links > kMostSwitchLinks) {
            throw InputError(file, "links of a switch", std::to_string(links),
                             "at most " + std::to_string(kMostSwitchLinks));
        }
    }
}

void set_tree(ClusterSpec& cluster, const FabricDescription& fabric, const std::string& file, Notes& notes) {
    const TreeShape shape = shape_of(fabric);
    if (shape.leaves == 0) throw InputError(file + ": no switch with nodes below it");
    if (shape.least_nodes != shape.most_nodes) {
        notes.add("leaves hold " + from_to(shape.least_nodes, shape.most_nodes) + " nodes: taken as " +
                  std::to_string(shape.most_nodes) + " each, filled in order");
    }
    if (fabric.counts_cables && shape.least_uplinks != shape.most_uplinks) {
        notes.add("leaves have " + from_to(shape.least_uplinks, shape.most_uplinks) +
                  " cables above them: taken as equal");
    }
    const std::int64_t ports = std::llround(shape.ports_a_node);
    if (fabric.counts_cables && ports != cluster.nics_per_node) {
        const std::string words = "nodes have " + std::to_string(ports) + " ports on this fabric; ";
        const std::string nics = std::to_string(cluster.nics_per_node) + " NICs";
        // NICs without a cable carry no traffic.
        if (ports >= 1 && ports < cluster.nics_per_node && cluster.devices_per_node % ports == 0) {
            cluster.nics_per_node = ports;
            notes.add(words + "the node has as many NICs, not " + nics);
        } else {
            notes.add(words + "the node's " + nics + " are kept");
        }
    }
    if (shape.tiers == 1 && shape.leaves == 1) {
        cluster.fabric = FabricKind::single_switch;
    } else if (shape.tiers == 1) {
        throw InputError(file + ": " + std::to_string(shape.leaves) +
                         " switches with nodes and none above them; allowed: a fabric that joins all nodes");
    } else if (shape.on_rails) {
        set_rails(cluster, fabric, shape, notes);
    } else {
        set_fat_tree(cluster, fabric, shape, file, notes);
    }
}

void set_link(ClusterSpec& cluster, double gb_per_s, const std::string& file, Notes& notes) {
    if (gb_per_s == 0 || cluster.nic.bandwidth_gb_per_s_per_direction.value == gb_per_s) return;
    for (const char* name : {"infiniband-edr", "infiniband-hdr", "infiniband-ndr"}) {
        const LinkProfile known = load_link(name);
        if (known.bandwidth_gb_per_s_per_direction.value == gb_per_s) cluster.nic = known;
    }
    cluster.nic.bandwidth_gb_per_s_per_direction = {
        gb_per_s, Provenance::datasheet, "cables by " + printable(std::filesystem::path(file).filename().string())};
    notes.add("NICs and cables are taken at the fabric's rate, " + std::to_string(gb_per_s) + " GB/s per direction");
}

}  // namespace

void set_fabric(ClusterSpec& cluster, const FabricDescription& fabric, const std::string& file, Notes& notes) {
    for (const std::string& note : fabric.notes.list()) notes.add(note);
    if (cluster.nics_per_node == 0) {
        throw InputError(file, "fabric", "a node without NICs", "a node with NICs (orrery topo import --node)");
    }
    const FabricKind before = cluster.fabric;
    cluster.fabric_shape = FabricShape{};
    switch (fabric.layout) {
        case FabricLayout::tree:
            set_tree(cluster, fabric, file, notes);
            break;
        case FabricLayout::flat:
            cluster.fabric = FabricKind::single_switch;
            break;
        case FabricLayout::torus:
            cluster.fabric = FabricKind::torus;
            cluster.fabric_shape.dimensions = fabric.torus_dimensions;
            break;
        case FabricLayout::block:
        case FabricLayout::ring:
            notes.add(fabric.format + " names " + (fabric.layout == FabricLayout::block ? "blocks" : "rings") +
                      " of nodes and no switches: the fabric stays " + name_of(before));
            break;
    }
    if (!fabric.blocks.empty()) {
        notes.add("blocks of nodes that share NVLink are not joined: the node of a cluster is its NVLink domain");
    }
    set_link(cluster, fabric.link_gb_per_s_per_direction, file, notes);
    cluster.source += "; fabric imported from " + printable(std::filesystem::path(file).filename().string()) + " (" +
                      fabric.format + ")";
    if (!fabric.nodes.empty()) cluster.nodes = static_cast<std::int64_t>(fabric.nodes.size());
}

}  // namespace orrery::topologies
