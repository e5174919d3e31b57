// Counts and bisection of every fabric compared with closed forms; coordinates; refusals.
#include "topologies/fabric.h"

#include <gtest/gtest.h>

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/edmonds_karp_max_flow.hpp>
#include <map>
#include <set>

#include "core/error.h"
#include "tests/unit/topologies/fabric_clusters.h"
#include "topologies/bisection.h"

namespace orrery::topologies {
namespace {

using test::dragonfly;
using test::every_fabric;
using test::fat_tree;
using test::rails;
using test::torus;

std::int64_t links_of(const Cluster& cluster, LinkKind kind) {
    std::int64_t count = 0;
    for (LinkId id = 0; id < cluster.link_count(); ++id) count += cluster.link(id).kind == kind ? 1 : 0;
    return count / 2;  // cables
}

struct Counts {
    ClusterSpec spec;
    std::int64_t leaves, spines, cores, routers, trunks, core_trunks;
};

TEST(Fabric, SwitchAndCableCountsMatchClosedForms) {
    const std::vector<Counts> cases{
        {test::single_switch(5), 1, 0, 0, 0, 0, 0},
        // 3 units of 8 rails, as many spines as a full unit has nodes.
        {rails(FabricKind::rail_optimised, 10, 4), 24, 4, 0, 0, 24 * 4, 0},
        // Radix 16: 8 leaves below a spine, so that each unit is a pod of 4 spines with 8 uplinks each.
        {rails(FabricKind::rail_optimised, 24, 4, 16), 48, 24, 32, 0, 48 * 4, 24 * 8},
        {rails(FabricKind::rail_only, 10, 4), 24, 32, 0, 0, 24 * 4, 0},
        {rails(FabricKind::rail_only, 4, 4), 8, 0, 0, 0, 0, 0},
        // k-ary fat tree: k^3/4 hosts, k pods of k/2 leaves and k/2 spines, k^2/4 cores, k^3/4 cables on each level.
        {fat_tree(54, 3, 6), 18, 18, 9, 0, 54, 54},
        {fat_tree(128, 3, 8), 32, 32, 16, 0, 128, 128},
        {fat_tree(32, 2, 8), 8, 4, 0, 0, 32, 0},
        {fat_tree(36, 2, 12, {3}), 4, 3, 0, 0, 12, 0},  // 9 down, 3 up
        {dragonfly(36, 9, 4, 1, 2), 0, 0, 0, 36, 9 * 6, 36},
        {torus({4, 5}), 0, 0, 0, 20, 40, 0},
        {torus({2, 3, 4}), 0, 0, 0, 24, 12 + 24 + 24, 0},
    };
    for (const Counts& expected : cases) {
        const Cluster cluster(expected.spec);
        SCOPED_TRACE(expected.spec.name + " of " + std::to_string(expected.spec.nodes));
        std::map<VertexKind, std::int64_t> kinds;
        for (VertexId v = 0; v < cluster.vertex_count(); ++v) ++kinds[cluster.vertex(v).kind];
        EXPECT_EQ(kinds[VertexKind::leaf], expected.leaves);
        EXPECT_EQ(kinds[VertexKind::spine], expected.spines);
        EXPECT_EQ(kinds[VertexKind::core], expected.cores);
        EXPECT_EQ(kinds[VertexKind::router], expected.routers);
        EXPECT_EQ(links_of(cluster, LinkKind::trunk), expected.trunks);
        EXPECT_EQ(links_of(cluster, LinkKind::core_trunk), expected.core_trunks);
        EXPECT_EQ(links_of(cluster, LinkKind::nic), expected.spec.nodes * expected.spec.nics_per_node);
    }
}

TEST(Fabric, LargerCoresJoinMorePods) {
    ClusterSpec spec = rails(FabricKind::rail_optimised, 65, 4, 16);  // pods of one unit of 4 nodes
    EXPECT_THROW(Fabric{spec}, InputError) << "16 ports join 16 pods";
    spec.fabric_shape.core_radix = 17;
    const Fabric fabric(spec);
    EXPECT_EQ(fabric.clos().pods, 17);
    EXPECT_EQ(fabric.cores(), 4 * 8) << "a core for each of a leaf's 4 and a spine's 8 uplinks";
    spec.nodes = 69;
    EXPECT_THROW(Fabric{spec}, InputError);
}

TEST(Fabric, SwitchesStayWithinTheirRadix) {
    for (const ClusterSpec& spec : every_fabric()) {
        if (spec.fabric_shape.radix == 0) continue;
        const Cluster cluster(spec);
        for (VertexId v = cluster.fabric_switch(0); v < cluster.vertex_count(); ++v) {
            EXPECT_LE(static_cast<std::int64_t>(cluster.links_from(v).size()), spec.fabric_shape.radix)
                << spec.name << ": " << cluster.graph().name(v);
        }
    }
}

TEST(Fabric, ADragonflyJoinsAllPairsOfGroupsEqually) {
    for (const ClusterSpec& spec : {dragonfly(33, 9, 4, 1, 2), dragonfly(30, 4, 3, 3, 3), dragonfly(8, 5, 1, 2, 9)}) {
        const Cluster cluster(spec);
        std::map<std::pair<std::int32_t, std::int32_t>, double> between;
        for (LinkId id = 0; id < cluster.link_count(); ++id) {
            const Link& link = cluster.link(id);
            if (link.kind != LinkKind::core_trunk) continue;
            between[{cluster.vertex(link.from).group, cluster.vertex(link.to).group}] += link.bandwidth.value();
        }
        const FabricShape& shape = spec.fabric_shape;
        ASSERT_EQ(static_cast<std::int64_t>(between.size()), shape.groups * (shape.groups - 1));
        const std::int64_t each = shape.routers_per_group * shape.global_links_per_router / (shape.groups - 1);
        for (const auto& [groups, bandwidth] : between) EXPECT_EQ(bandwidth, static_cast<double>(each) * 50e9);
    }
}

TEST(Fabric, CoordinatesAreABijection) {
    for (const ClusterSpec& spec : every_fabric()) {
        const Cluster cluster(spec);
        SCOPED_TRACE(spec.name);
        std::set<std::tuple<VertexKind, std::int32_t, std::int32_t>> seen;
        for (VertexId v = 0; v < cluster.vertex_count(); ++v) {
            const Vertex& vertex = cluster.vertex(v);
            const std::int32_t node = is_fabric_switch(vertex.kind) ? -1 : vertex.group;
            EXPECT_TRUE(seen.insert({vertex.kind, node, vertex.index}).second);
            EXPECT_EQ(cluster.vertex_named(cluster.graph().name(v)), v) << cluster.graph().name(v);
        }
        for (const char* name : {"leaf 999", "node 99 nic 0", "node 0 nic 64", "node 0", "node 0 leaf 0", "leaf",
                                 "leaf x", "leaf 0 ", "node 0 device 0x", "device 0", "router -1", ""}) {
            EXPECT_EQ(cluster.vertex_named(name), std::nullopt) << name;
        }
        for (std::int64_t node = 0; node < spec.nodes; ++node) {
            for (std::int64_t rail = 0; rail < spec.nics_per_node; ++rail) {
                const VertexId edge = cluster.fabric_switch(cluster.fabric().edge_switch(node, rail));
                EXPECT_TRUE(cluster.graph().link_between(cluster.nic(node, rail), edge));
            }
        }
    }
}

/// Maximum flow over all of the cluster's links outside nodes, by another algorithm than bisection.cpp's.
double max_flow(const Cluster& cluster, const std::vector<bool>& first) {
    using Traits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;
    using Edges = boost::property<boost::edge_capacity_t, std::int64_t,
                                  boost::property<boost::edge_residual_capacity_t, std::int64_t,
                                                  boost::property<boost::edge_reverse_t, Traits::edge_descriptor>>>;
    using Flow = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property, Edges>;
    const auto vertices = static_cast<std::size_t>(cluster.vertex_count());
    Flow flow(vertices + 2);
    const auto add = [&flow](std::size_t from, std::size_t to, std::int64_t capacity) {
        const auto there = boost::add_edge(from, to, flow).first, back = boost::add_edge(to, from, flow).first;
        boost::put(boost::edge_capacity, flow, there, capacity);
        boost::put(boost::edge_capacity, flow, back, 0);
        boost::put(boost::edge_reverse, flow, there, back);
        boost::put(boost::edge_reverse, flow, back, there);
    };
    for (LinkId id = 0; id < cluster.link_count(); ++id) {
        const Link& link = cluster.link(id);
        const bool outside =
            link.kind == LinkKind::nic || link.kind == LinkKind::trunk || link.kind == LinkKind::core_trunk;
        if (!outside || link.failed) continue;
        add(static_cast<std::size_t>(link.from), static_cast<std::size_t>(link.to),
            std::llround(link.bandwidth.value()));
    }
    constexpr std::int64_t kPlenty = 1'000'000'000'000'000;
    for (std::int64_t node = 0; node < cluster.spec().nodes; ++node) {
        for (std::int64_t rail = 0; rail < cluster.spec().nics_per_node; ++rail) {
            const auto nic = static_cast<std::size_t>(cluster.nic(node, rail));
            if (first[static_cast<std::size_t>(node)]) {
                add(vertices, nic, kPlenty);
            } else {
                add(nic, vertices + 1, kPlenty);
            }
        }
    }
    return static_cast<double>(boost::edmonds_karp_max_flow(flow, vertices, vertices + 1));
}

std::vector<bool> first_half(std::int64_t nodes) {
    std::vector<bool> first(static_cast<std::size_t>(nodes));
    std::fill(first.begin(), first.begin() + nodes / 2, true);
    return first;
}

TEST(Bisection, EqualsMaximumFlow) {
    std::vector<ClusterSpec> specs = every_fabric();
    for (ClusterSpec& oversubscribed : std::vector<ClusterSpec>{fat_tree(30, 3, 9, {2, 2}), fat_tree(17, 2, 8, {3})}) {
        specs.push_back(oversubscribed);
    }
    specs.push_back(rails(FabricKind::rail_optimised, 18, 4));
    specs.back().fabric_shape.oversubscription = {4};
    specs.push_back(rails(FabricKind::rail_optimised, 22, 4, 16));
    specs.back().fabric_shape.trunk = test::cable(30);
    specs.back().fabric_shape.core_trunk = test::cable(7);
    for (const ClusterSpec& spec : specs) {
        const Cluster cluster(spec);
        SCOPED_TRACE(spec.name + " of " + std::to_string(spec.nodes));
        const std::vector<bool> half = first_half(spec.nodes);
        EXPECT_EQ(cut_bandwidth(cluster, half).value(), max_flow(cluster, half));
        if (spec.fabric != FabricKind::torus) {
            EXPECT_EQ(bisection_bandwidth(cluster).value(), max_flow(cluster, half));
        }
    }
}

TEST(Bisection, EqualsClosedForms) {
    const auto gb = [](const ClusterSpec& spec) { return bisection_bandwidth(Cluster(spec)).value() / 1e9; };
    EXPECT_EQ(gb(test::single_switch(6)), 3 * 8 * 50);                    // every NIC of a half
    EXPECT_EQ(gb(rails(FabricKind::rail_optimised, 16, 4)), 8 * 8 * 50);  // non-blocking
    EXPECT_EQ(gb(rails(FabricKind::rail_only, 16, 4)), 8 * 8 * 50);       // non-blocking on each rail
    EXPECT_EQ(gb(fat_tree(54, 3, 6)), 27 * 50);
    EXPECT_EQ(gb(fat_tree(36, 2, 12, {3})), 18.0 / 3 * 50);  // a third of a half's NICs
    EXPECT_EQ(gb(torus({8, 4}, 8)), 2 * 4 * 50);             // 2 cables for each of a plane's 4 rows
    EXPECT_EQ(gb(torus({4, 8}, 8)), 2 * 4 * 50);
    EXPECT_EQ(gb(torus({4, 4, 4}, 8)), 2 * 16 * 50);
    EXPECT_EQ(gb(dragonfly(32, 4, 4, 2, 3)), 2 * 2 * 4 * 50);  // 4 cables between each two groups
}

TEST(Bisection, CountsFailedAndDegradedLinks) {
    ClusterSpec spec = fat_tree(32, 2, 8);
    spec.overrides = {{"leaf 0 - spine 0", -1, -1, 0}, {"leaf 1 - spine 2", -1, -1, 0.5}};
    EXPECT_EQ(bisection_bandwidth(Cluster(spec)).value(), (16 - 1.5) * 50e9);
    EXPECT_EQ(max_flow(Cluster(spec), first_half(32)), (16 - 1.5) * 50e9);
    EXPECT_THROW((void)bisection_bandwidth(Cluster(load_cluster("dgx-h100", 8))), InputError);
}

TEST(Fabric, GeometryThatDoesNotFitIsRefused) {
    struct Case {
        ClusterSpec spec;
        const char* key;
        const char* allowed;
    };
    ClusterSpec small_switch = test::single_switch(5);
    small_switch.fabric_shape.radix = 32;
    ClusterSpec no_arity = fat_tree(4, 2, 0);
    ClusterSpec flat = torus({4, 4});
    flat.fabric_shape.dimensions = {16};
    ClusterSpec zero = torus({4, 4});
    zero.fabric_shape.dimensions = {0, 4};
    ClusterSpec crowded = torus({4, 4});
    crowded.nodes = 17;
    for (const Case& bad :
         {Case{small_switch, "nodes: got 5", "at most 4"}, Case{fat_tree(55, 3, 6), "nodes: got 55", "at most 54"},
          Case{fat_tree(33, 2, 8), "nodes: got 33", "at most 32"}, Case{no_arity, "fabric_shape", "radix"},
          Case{fat_tree(4, 2, 8, {}, 8), "fabric_shape.radix: got 8", "8 NICs of a node"},
          Case{rails(FabricKind::rail_optimised, 64, 32, 48), "nodes_per_scalable_unit: got 32", "32 + 32"},
          Case{rails(FabricKind::rail_optimised, 64, 4, 8), "fabric_shape.radix: got 8", "8 leaves"},
          Case{rails(FabricKind::rail_optimised, 65, 4, 16), "nodes: got 65", "at most 64"},
          Case{rails(FabricKind::rail_only, 65, 4, 16), "nodes: got 65", "at most 64"},
          Case{dragonfly(5, 9, 2, 1, 3), "global_links_per_router: got 3", "at least 4"},
          Case{dragonfly(37, 9, 4, 1, 2), "nodes: got 37", "at most 36"},
          Case{dragonfly(5, 0, 4, 1, 2), "groups: got 0", "at least 1"}, Case{flat, "dimensions: got 1", "2 or 3"},
          Case{zero, "dimensions: got 0", "at least 1"}, Case{crowded, "nodes: got 17", "at most 16"}}) {
        try {
            const Cluster cluster(bad.spec);
            ADD_FAILURE() << bad.key << " was accepted";
        } catch (const InputError& error) {
            const std::string message = error.what();
            EXPECT_NE(message.find(bad.key), std::string::npos) << message;
            EXPECT_NE(message.find(bad.allowed), std::string::npos) << message;
        }
    }
}

}  // namespace
}  // namespace orrery::topologies
