#include "topologies/cluster.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <map>

#include "core/error.h"

namespace orrery::topologies {
namespace {

Cluster h100(std::int64_t devices) {
    return build_cluster(load_cluster("dgx-h100", devices));
}

std::map<VertexKind, std::int64_t> kinds_of(const Cluster& cluster) {
    std::map<VertexKind, std::int64_t> counts;
    for (VertexId v = 0; v < cluster.vertex_count(); ++v) ++counts[cluster.vertex(v).kind];
    return counts;
}

/// Fewest links from a to b if no device forwards.
std::int64_t fewest_hops(const Cluster& cluster, VertexId a, VertexId b) {
    std::vector<std::int64_t> hops(static_cast<std::size_t>(cluster.vertex_count()), -1);
    hops[static_cast<std::size_t>(a)] = 0;
    std::deque<VertexId> queue{a};
    while (!queue.empty()) {
        const VertexId at = queue.front();
        queue.pop_front();
        if (at == b) return hops[static_cast<std::size_t>(at)];
        if (at != a && cluster.vertex(at).kind == VertexKind::device) continue;
        for (const Link& link : cluster.links_from(at)) {
            std::int64_t& next = hops[static_cast<std::size_t>(link.to)];
            if (next < 0) {
                next = hops[static_cast<std::size_t>(at)] + 1;
                queue.push_back(link.to);
            }
        }
    }
    return -1;
}

bool passes(const Cluster& cluster, const Path& path, VertexKind kind) {
    for (const LinkId id : path.links) {
        if (cluster.vertex(cluster.link(id).to).kind == kind) return true;
    }
    return false;
}

TEST(Cluster, OneNodeHasNoFabric) {
    const Cluster cluster = h100(4);
    EXPECT_EQ(cluster.device_count(), 8);
    const auto kinds = kinds_of(cluster);
    EXPECT_EQ(kinds, (std::map<VertexKind, std::int64_t>{
                         {VertexKind::device, 8}, {VertexKind::node_switch, 4}, {VertexKind::nic, 8}}));
}

TEST(Cluster, PartsOfANodeFollowPcieSwitchesAndSockets) {
    ClusterSpec spec = load_cluster("pcie-l40s", 8);
    const auto part = [&](std::int64_t a, std::int64_t b) { return NodeLayout(spec).part_of(a, b); };
    EXPECT_EQ(part(0, 1), NodePart::pcie_switch);
    EXPECT_EQ(part(1, 2), NodePart::socket);
    EXPECT_EQ(part(3, 4), NodePart::node);
    spec.inside.device_ports = {3, 2, 1, 0, 3, 2, 1, 0};
    EXPECT_EQ(part(0, 4), NodePart::pcie_switch);
    EXPECT_EQ(part(0, 5), NodePart::socket);
    EXPECT_EQ(part(0, 2), NodePart::node);
    spec.inside.device_ports.clear();
    spec.inside.pcie_switches = 0;
    EXPECT_EQ(part(0, 3), NodePart::socket);
    EXPECT_EQ(part(3, 4), NodePart::node);
    EXPECT_EQ(NodeLayout(load_cluster("dgx-h100", 8)).part_of(0, 1), NodePart::node);
}

TEST(Cluster, SixteenThousandDevices) {
    const Cluster cluster = h100(16384);
    const auto kinds = kinds_of(cluster);
    EXPECT_EQ(kinds.at(VertexKind::device), 16384);
    EXPECT_EQ(kinds.at(VertexKind::node_switch), 8192);
    EXPECT_EQ(kinds.at(VertexKind::nic), 16384);
    EXPECT_EQ(kinds.at(VertexKind::leaf), 64 * 8);
    EXPECT_EQ(kinds.at(VertexKind::spine), 16 * 32) << "16 pods of 4 scalable units";
    EXPECT_EQ(kinds.at(VertexKind::core), 32 * 32);
    EXPECT_EQ(cluster.link_count(), 2 * (16384 * 4 + 16384 + 16384 + 512 * 32 + 512 * 32));
    EXPECT_EQ(cluster.node_of(16383), 2047);
    EXPECT_EQ(cluster.scalable_unit_of(16383), 63);
    EXPECT_EQ(cluster.rail_of(16383), 7);
}

TEST(Cluster, EveryLinkHasItsReverse) {
    const Cluster cluster = h100(64);
    for (VertexId v = 0; v < cluster.vertex_count(); ++v) {
        VertexId previous = -1;
        for (const Link& link : cluster.links_from(v)) {
            EXPECT_EQ(link.from, v);
            EXPECT_GT(link.to, previous);
            previous = link.to;
            bool twin = false;
            for (const Link& back : cluster.links_from(link.to)) {
                twin |= back.to == v && back.kind == link.kind && back.bandwidth == link.bandwidth;
            }
            EXPECT_TRUE(twin);
        }
    }
}

TEST(Cluster, LeavesDoNotBlock) {
    const Cluster cluster = h100(2 * 32 * 8);
    for (VertexId v = 0; v < cluster.vertex_count(); ++v) {
        if (cluster.vertex(v).kind != VertexKind::leaf) continue;
        double up = 0;
        double down = 0;
        for (const Link& link : cluster.links_from(v)) {
            (link.kind == LinkKind::trunk ? up : down) += link.bandwidth.value();
        }
        EXPECT_EQ(up, down);
        EXPECT_EQ(down, 32 * 50e9);
    }
}

TEST(Path, InsideANodeIsStripedOverAllSwitches) {
    const Cluster cluster = h100(8);
    const Path path = cluster.path(1, 6);
    EXPECT_EQ(path.hops, 2);
    EXPECT_EQ(path.links.size(), 8U);
    EXPECT_DOUBLE_EQ(path.bandwidth.value(), 450e9);
    EXPECT_DOUBLE_EQ(path.effective_bandwidth.value(), 450e9 * 0.824);
    for (const LinkId id : path.links) EXPECT_EQ(cluster.link(id).kind, LinkKind::intra_node);
}

TEST(Path, BetweenNodesIsAsNarrowAsTheNic) {
    const Cluster cluster = h100(64 * 8);
    const Path rail = cluster.path(3, 8 + 3);
    EXPECT_EQ(rail.hops, 4 + 2 - 2);
    EXPECT_EQ(rail.bandwidth.value(), 50e9);
    EXPECT_EQ(rail.effective_bandwidth.value(), 50e9 * 0.96);
    EXPECT_EQ(rail.latency.value(), 2 * 130'000);
    const Path across = cluster.path(3, 40 * 8 + 3);
    EXPECT_EQ(across.hops, 6);
    EXPECT_EQ(across.latency.value(), 4 * 130'000);
    EXPECT_EQ(across.bandwidth.value(), 50e9);
}

TEST(Path, MayLeaveThroughTheSendersOwnNic) {
    const Cluster cluster = h100(64 * 8);
    const Path path = cluster.path(2, 8 + 5, NicChoice::own);
    std::vector<VertexKind> kinds;
    VertexId at = 2;
    for (const LinkId id : path.links) {
        EXPECT_EQ(cluster.link(id).from, at);
        at = cluster.link(id).to;
        kinds.push_back(cluster.vertex(at).kind);
    }
    EXPECT_EQ(at, 8 + 5);
    EXPECT_EQ(kinds, (std::vector<VertexKind>{VertexKind::nic, VertexKind::leaf, VertexKind::spine, VertexKind::leaf,
                                              VertexKind::nic, VertexKind::device}));
    EXPECT_EQ(cluster.vertex(cluster.link(path.links[0]).to).index, 2);
    EXPECT_EQ(cluster.vertex(cluster.link(path.links[3]).to).index, 5);
}

TEST(Path, AgreesWithDistanceAndIsShortest) {
    const Cluster cluster = h100(40 * 8);
    std::map<Distance, int> seen;
    for (const std::int64_t a : {0, 3, 7, 8, 100, 255, 256, 319}) {
        for (std::int64_t b = 0; b < cluster.device_count(); b += 3) {
            const Path path = cluster.path(a, b, NicChoice::own);
            const Distance far = cluster.distance(a, b);
            ++seen[far];
            EXPECT_EQ(far == Distance::same_device, path.links.empty());
            EXPECT_EQ(far == Distance::same_node, passes(cluster, path, VertexKind::node_switch));
            EXPECT_EQ(far == Distance::same_leaf || far == Distance::cross_leaf,
                      passes(cluster, path, VertexKind::leaf));
            EXPECT_EQ(far == Distance::cross_leaf, passes(cluster, path, VertexKind::spine));
            EXPECT_EQ(path.hops, fewest_hops(cluster, static_cast<VertexId>(a), static_cast<VertexId>(b)))
                << a << " to " << b;
            EXPECT_EQ(cluster.distance(b, a), far);
            EXPECT_EQ(cluster.path(b, a, NicChoice::own).latency, path.latency);
        }
    }
    EXPECT_EQ(seen.size(), 4U);
}

TEST(Path, FromADeviceToItselfIsFree) {
    const Path path = h100(8).path(5, 5);
    EXPECT_EQ(path.hops, 0);
    EXPECT_EQ(path.latency.value(), 0);
    EXPECT_TRUE(std::isinf(path.bandwidth.value()));
}

TEST(Cluster, CpuDevicesAreJoinedByTheirNodesMemory) {
    ClusterSpec spec = load_cluster("dgx-h100", 8);
    spec.device.host_runs_compute = true;
    spec.node_switches = 0;
    spec.nics_per_node = 0;
    spec.fabric = FabricKind::none;
    const Cluster cluster(spec);
    EXPECT_EQ(kinds_of(cluster),
              (std::map<VertexKind, std::int64_t>{{VertexKind::device, 8}, {VertexKind::host_memory, 1}}));
    EXPECT_EQ(cluster.path(0, 7).bandwidth.value(), 450e9);
    EXPECT_EQ(cluster.rail_of(3), -1);
    EXPECT_EQ(cluster.device_of_rank(11), 3);
}

TEST(Cluster, DevicesMayShareNics) {
    ClusterSpec spec = load_cluster("dgx-h100", 16);
    spec.nics_per_node = 4;
    const Cluster cluster(spec);
    EXPECT_EQ(cluster.rail_of(0), 0);
    EXPECT_EQ(cluster.rail_of(1), 0);
    EXPECT_EQ(cluster.rail_of(15), 3);
    EXPECT_EQ(cluster.distance(0, 9), Distance::same_leaf);
    EXPECT_EQ(cluster.path(0, 9).hops, 4);
}

TEST(Cluster, RefusesInvalidSpecs) {
    ClusterSpec spec = load_cluster("dgx-h100", 16);
    spec.fabric = FabricKind::none;
    EXPECT_THROW(Cluster{spec}, InputError);
    spec = load_cluster("dgx-h100", 16);
    spec.nodes = std::int64_t{1} << 30;
    EXPECT_THROW(Cluster{spec}, InputError);
    const Cluster cluster = h100(8);
    EXPECT_THROW((void)cluster.path(0, 8), BugError);
    EXPECT_THROW((void)cluster.node_of(-1), BugError);
    EXPECT_THROW((void)cluster.device_of_rank(8), BugError);
}

}  // namespace
}  // namespace orrery::topologies
