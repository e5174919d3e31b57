// Small clusters with round figures for every kind of fabric, and a search on their graphs.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "topologies/cluster.h"

namespace orrery::topologies::test {

inline LinkProfile cable(double gb_per_s, double microseconds = 0.5) {
    const auto figure = [](double value) { return Figure{value, Provenance::fallback, "made up for tests"}; };
    return {"cable", LinkMedium::infiniband, figure(gb_per_s), figure(microseconds), figure(1)};
}

/// Nodes with 8 GPUs behind 4 NVSwitches and `nics` NICs of 50 GB/s.
inline ClusterSpec nodes_with(FabricKind fabric, std::int64_t nodes, std::int64_t nics = 8) {
    ClusterSpec spec = load_cluster("dgx-h100", 8);
    spec.name = name_of(fabric);
    spec.nodes = nodes;
    spec.nics_per_node = nics;
    spec.fabric = fabric;
    spec.fabric_shape = {};
    return spec;
}

inline ClusterSpec single_switch(std::int64_t nodes) {
    return nodes_with(FabricKind::single_switch, nodes);
}

inline ClusterSpec rails(FabricKind kind, std::int64_t nodes, std::int64_t per_unit, std::int64_t radix = 0) {
    ClusterSpec spec = nodes_with(kind, nodes);
    spec.nodes_per_scalable_unit = per_unit;
    spec.fabric_shape.radix = radix;
    return spec;
}

inline ClusterSpec fat_tree(std::int64_t nodes, std::int64_t levels, std::int64_t radix,
                            std::vector<double> oversubscription = {}, std::int64_t nics = 1) {
    ClusterSpec spec = nodes_with(FabricKind::fat_tree, nodes, nics);
    spec.fabric_shape.levels = levels;
    spec.fabric_shape.radix = radix;
    spec.fabric_shape.oversubscription = std::move(oversubscription);
    return spec;
}

inline ClusterSpec dragonfly(std::int64_t nodes, std::int64_t groups, std::int64_t routers, std::int64_t per_router,
                             std::int64_t globals) {
    ClusterSpec spec = nodes_with(FabricKind::dragonfly, nodes, 2);
    spec.fabric_shape.groups = groups;
    spec.fabric_shape.routers_per_group = routers;
    spec.fabric_shape.nodes_per_router = per_router;
    spec.fabric_shape.global_links_per_router = globals;
    return spec;
}

inline ClusterSpec torus(std::vector<std::int64_t> dimensions, std::int64_t nics = 2) {
    std::int64_t nodes = 1;
    for (const std::int64_t length : dimensions) nodes *= length;
    ClusterSpec spec = nodes_with(FabricKind::torus, nodes, nics);
    spec.fabric_shape.dimensions = std::move(dimensions);
    return spec;
}

/// Clusters with every kind of fabric, and with every number of tiers for the kinds that have tiers.
inline std::vector<ClusterSpec> every_fabric() {
    ClusterSpec lean = fat_tree(24, 3, 0);
    lean.fabric_shape.nodes_per_leaf = 3;
    lean.fabric_shape.uplinks_per_leaf = 2;
    lean.fabric_shape.leaves_per_pod = 4;
    lean.fabric_shape.uplinks_per_spine = 3;
    return {single_switch(5),
            rails(FabricKind::rail_optimised, 10, 4),
            rails(FabricKind::rail_optimised, 24, 4, 16),  // three tiers
            rails(FabricKind::rail_only, 10, 4),
            fat_tree(15, 2, 8, {}, 2),
            fat_tree(30, 3, 6),
            fat_tree(30, 2, 12, {3}),
            lean,
            dragonfly(33, 9, 4, 1, 2),
            dragonfly(30, 4, 3, 3, 3),
            torus({4, 5}),
            torus({2, 3, 4})};
}

/// Number of links of a shortest route from `start` to each vertex, by breadth-first search over working links; -1:
/// none.
inline std::vector<std::int64_t> hops_from(const Graph& graph, VertexId start) {
    std::vector<std::int64_t> hops(static_cast<std::size_t>(graph.vertex_count()), -1);
    std::deque<VertexId> queue{start};
    hops[static_cast<std::size_t>(start)] = 0;
    while (!queue.empty()) {
        const VertexId at = queue.front();
        queue.pop_front();
        for (const Link& link : graph.links_from(at)) {
            if (link.failed || !is_fabric_switch(graph.vertex(link.to).kind)) continue;
            std::int64_t& next = hops[static_cast<std::size_t>(link.to)];
            if (next >= 0) continue;
            next = hops[static_cast<std::size_t>(at)] + 1;
            queue.push_back(link.to);
        }
    }
    return hops;
}

}  // namespace orrery::topologies::test
