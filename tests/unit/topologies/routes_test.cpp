// Routes over every fabric: connected, loop-free, shortest, evenly spread, and around failed links.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "core/error.h"
#include "core/random.h"
#include "tests/unit/topologies/fabric_clusters.h"

namespace orrery::topologies {
namespace {

using test::dragonfly;
using test::every_fabric;
using test::fat_tree;
using test::rails;
using test::torus;

std::string label(const Cluster& cluster) {
    return cluster.spec().name + " of " + std::to_string(cluster.spec().nodes);
}

std::string message_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const InputError& error) {
        return error.what();
    }
    return "";
}

/// The vertices of one stripe from a to b; checks that working links join them end to end.
std::vector<VertexId> stops_of(const Cluster& cluster, std::int64_t a, std::int64_t b, const Path& path) {
    std::vector<VertexId> stops{static_cast<VertexId>(a)};
    std::int64_t crossed = 0;
    for (std::size_t i = 0; i < path.links.size(); ++i) {
        const Link& link = cluster.link(path.links[i]);
        EXPECT_FALSE(link.failed);
        if (link.from != stops.back()) {  // another stripe: begins at the vertex before the switch
            EXPECT_GE(stops.size(), 3U);
            EXPECT_EQ(link.from, stops[stops.size() - 3]);
            EXPECT_EQ(cluster.link(path.links[i + 1]).from, link.to);
            EXPECT_EQ(cluster.link(path.links[i + 1]).to, stops.back());
            ++i;
            continue;
        }
        stops.push_back(link.to);
        ++crossed;
    }
    EXPECT_EQ(crossed, path.hops);
    EXPECT_EQ(stops.back(), b);
    const std::set<VertexId> once(stops.begin(), stops.end());
    EXPECT_EQ(once.size(), stops.size()) << "a vertex is passed twice";
    return stops;
}

std::int64_t switches_on(const Cluster& cluster, const std::vector<VertexId>& stops) {
    return std::count_if(stops.begin(), stops.end(),
                         [&](VertexId v) { return is_fabric_switch(cluster.vertex(v).kind); });
}

/// Checks for a sample of pairs that the route is connected and loop-free, and that its part in the fabric is as short
/// as a search finds.
void expect_shortest(const Cluster& cluster) {
    SCOPED_TRACE(label(cluster));
    const std::int64_t devices = cluster.device_count();
    std::map<VertexId, std::vector<std::int64_t>> hops;
    for (std::int64_t a = 0; a < devices; a += std::max<std::int64_t>(1, devices / 23)) {
        for (std::int64_t b = 1; b < devices; b += std::max<std::int64_t>(1, devices / 31)) {
            const Path path = cluster.path(a, b);
            const std::vector<VertexId> stops = stops_of(cluster, a, b, path);
            std::vector<VertexId> inside;
            for (const VertexId v : stops) {
                if (is_fabric_switch(cluster.vertex(v).kind)) inside.push_back(v);
            }
            if (cluster.node_of(a) == cluster.node_of(b)) {
                EXPECT_TRUE(inside.empty());
                continue;
            }
            ASSERT_FALSE(inside.empty());
            auto [found, fresh] = hops.try_emplace(inside.front());
            if (fresh) found->second = test::hops_from(cluster.graph(), inside.front());
            EXPECT_EQ(static_cast<std::int64_t>(inside.size()) - 1,
                      found->second[static_cast<std::size_t>(inside.back())])
                << a << " to " << b;
        }
    }
}

TEST(Routes, AreConnectedLoopFreeAndShortestOnEveryFabric) {
    for (const ClusterSpec& spec : every_fabric()) expect_shortest(Cluster(spec));
}

TEST(Routes, MayUseTheSendersOwnNic) {
    for (ClusterSpec spec : every_fabric()) {
        spec.routing.nic = NicChoice::own;
        expect_shortest(Cluster(spec));
    }
}

TEST(Routes, GoUpAndThenDownInTrees) {
    const std::map<VertexKind, int> tier{{VertexKind::leaf, 1}, {VertexKind::spine, 2}, {VertexKind::core, 3}};
    for (const ClusterSpec& spec : every_fabric()) {
        const Cluster cluster(spec);
        if (!cluster.fabric().is_clos()) continue;
        SCOPED_TRACE(label(cluster));
        for (std::int64_t a = 0; a < cluster.device_count(); a += 5) {
            for (std::int64_t b = 0; b < cluster.device_count(); b += 7) {
                if (cluster.node_of(a) == cluster.node_of(b)) continue;
                bool down = false;
                int before = 0;
                for (const LinkId id : cluster.path(a, b).links) {
                    const VertexKind kind = cluster.vertex(cluster.link(id).to).kind;
                    const int now = tier.contains(kind) ? tier.at(kind) : 0;
                    if (now == 0) continue;
                    EXPECT_FALSE(down && now > before);
                    down = down || now < before;
                    before = now;
                }
            }
        }
    }
}

TEST(Routes, TurnAtTheLowestPossibleTier) {
    const Cluster cluster(fat_tree(54, 3, 6));  // 18 leaves of 3 nodes, 6 pods
    ASSERT_EQ(cluster.fabric().leaves(), 18);
    EXPECT_EQ(cluster.fabric().spines(), 18);
    EXPECT_EQ(cluster.fabric().cores(), 9);
    EXPECT_EQ(cluster.distance(0, 8), Distance::same_leaf);
    EXPECT_EQ(cluster.distance(0, 3 * 8), Distance::cross_leaf);
    EXPECT_EQ(cluster.distance(0, 9 * 8), Distance::cross_pod);
    EXPECT_EQ(cluster.path(0, 8).hops, 4);
    EXPECT_EQ(cluster.path(0, 3 * 8).hops, 6);
    EXPECT_EQ(cluster.path(0, 9 * 8).hops, 8);
}

/// How many routes use each link of a kind when each device sends to the device `shift` further on.
std::map<LinkId, std::int64_t> loads(const Cluster& cluster, LinkKind kind, std::int64_t shift) {
    std::map<LinkId, std::int64_t> used;
    for (std::int64_t a = 0; a < cluster.device_count(); ++a) {
        const std::int64_t b = (a + shift) % cluster.device_count();
        for (const LinkId id : cluster.path(a, b).links) {
            if (cluster.link(id).kind == kind) ++used[id];
        }
    }
    return used;
}

TEST(Spread, NeighboursUseEveryUplinkOnce) {
    // In a non-blocking fabric a shift by a unit or pod is a permutation in which no link carries two flows.
    const Cluster rail(rails(FabricKind::rail_optimised, 16, 4));
    const auto trunks = loads(rail, LinkKind::trunk, 4 * 8);
    EXPECT_EQ(trunks.size(), 2U * 32 * 4);  // up and down, 32 leaves with 4 uplinks
    for (const auto& [id, count] : trunks) EXPECT_EQ(count, 1) << id;
    ClusterSpec spec = fat_tree(54, 3, 6);
    spec.devices_per_node = 1;
    const Cluster tree(spec);
    for (const LinkKind kind : {LinkKind::trunk, LinkKind::core_trunk}) {
        const auto used = loads(tree, kind, 9);
        EXPECT_EQ(used.size(), 2U * 54);
        for (const auto& [id, count] : used) EXPECT_EQ(count, 1) << id;
    }
}

TEST(Spread, ByDestinationEachReceiverIsReachedOverOneSpine) {
    ClusterSpec spec = rails(FabricKind::rail_optimised, 16, 4);
    spec.routing.spread = Spread::destination;
    const Cluster cluster(spec);
    std::set<VertexId> spines, over_all;
    for (std::int64_t node = 0; node < 16; ++node) {
        for (const std::int64_t to : {12, 13}) {
            if (node / 4 == to / 4) continue;
            for (const LinkId id : cluster.path(node * 8, to * 8).links) {
                const VertexId v = cluster.link(id).to;
                if (cluster.vertex(v).kind != VertexKind::spine) continue;
                (to == 12 ? spines : over_all).insert(v);
            }
        }
    }
    EXPECT_EQ(spines.size(), 1U);
    EXPECT_EQ(over_all.size(), 1U);
    EXPECT_NE(*spines.begin(), *over_all.begin());
}

TEST(Spread, HashedFlowsUseAllUplinksDeterministically) {
    ClusterSpec spec = rails(FabricKind::rail_optimised, 64, 8);
    spec.routing.spread = Spread::hash;
    const Cluster cluster(spec), again(spec);
    std::map<VertexId, int> spines;
    for (std::int64_t a = 0; a < 8; ++a) {
        for (std::int64_t b = 8; b < 64; ++b) {
            const Path path = cluster.path(a * 8, b * 8);
            EXPECT_EQ(path.links, again.path(a * 8, b * 8).links);
            for (const LinkId id : path.links) {
                if (cluster.vertex(cluster.link(id).to).kind == VertexKind::spine) ++spines[cluster.link(id).to];
            }
        }
    }
    ASSERT_EQ(spines.size(), 8U);
    for (const auto& [spine, count] : spines) {  // 448 flows over 8 spines: 56 each, within 4 sigma
        EXPECT_GT(count, 56 - 28);
        EXPECT_LT(count, 56 + 28);
    }
}

TEST(FailedLinks, AreAvoidedByTheShortestRemainingRoutes) {
    for (const ClusterSpec& healthy : every_fabric()) {
        const Cluster whole(healthy);
        RandomStream random(7, "failed " + label(whole));
        ClusterSpec spec = healthy;
        std::uint64_t draw = 0;
        for (LinkId id = 0; id < whole.link_count(); ++id) {
            const Link& link = whole.link(id);
            if (link.from > link.to || (link.kind != LinkKind::trunk && link.kind != LinkKind::core_trunk)) continue;
            if (random.bits(draw++) % 8 != 0) continue;
            spec.overrides.push_back({whole.graph().name(link.from) + " - " + whole.graph().name(link.to), -1, -1, 0});
        }
        const Cluster cluster(spec);
        std::int64_t failed = 0;
        for (LinkId id = 0; id < cluster.link_count(); ++id) failed += cluster.link(id).failed ? 1 : 0;
        EXPECT_EQ(failed, 2 * static_cast<std::int64_t>(spec.overrides.size()));
        try {
            expect_shortest(cluster);
        } catch (const InputError& error) {  // the random failures may cut off a switch
            EXPECT_NE(std::string(error.what()).find("cannot reach device"), std::string::npos) << error.what();
        }
    }
}

TEST(FailedLinks, ADeviceWithoutItsNicUsesAnotherDevicesNic) {
    ClusterSpec spec = rails(FabricKind::rail_optimised, 8, 4);
    spec.overrides = {{"node 1 nic 3 - leaf 3", -1, -1, 0}};
    const Cluster cluster(spec);
    const Path path = cluster.path(8 + 3, 2 * 8 + 3);
    const std::vector<VertexId> stops = stops_of(cluster, 8 + 3, 2 * 8 + 3, path);
    EXPECT_FALSE(std::count(stops.begin(), stops.end(), cluster.nic(1, 3)));
    EXPECT_EQ(cluster.path(2 * 8 + 3, 3 * 8 + 3).hops, 4);  // other nodes are not affected
    EXPECT_EQ(switches_on(cluster, stops), 1);              // over NVLink to a NIC that shares a leaf with the receiver
    EXPECT_EQ(cluster.vertex(stops[1]).kind, VertexKind::node_switch);
}

TEST(FailedLinks, WithoutOneNvlinkTrafficUsesTheOtherSwitches) {
    ClusterSpec spec = rails(FabricKind::rail_optimised, 2, 4);
    spec.overrides = {{"node 0 device 2 - node 0 switch 1", -1, -1, 0}};
    const Cluster cluster(spec);
    EXPECT_DOUBLE_EQ(cluster.path(2, 5).bandwidth.value(), 450e9 * 3 / 4);
    EXPECT_DOUBLE_EQ(cluster.path(5, 2).bandwidth.value(), 450e9 * 3 / 4);
    EXPECT_DOUBLE_EQ(cluster.path(4, 5).bandwidth.value(), 450e9);
    EXPECT_DOUBLE_EQ(cluster.path(8 + 2, 8 + 5).bandwidth.value(), 450e9);
    stops_of(cluster, 2, 5, cluster.path(2, 5));
    spec.overrides = {{"intra_node", 0, -1, 0}};  // all NVLinks of node 0: its devices communicate over the fabric
    const Cluster without(spec);
    EXPECT_EQ(switches_on(without, stops_of(without, 2, 5, without.path(2, 5))), 3);
}

TEST(FailedLinks, UnreachableDevicesAreNamed) {
    ClusterSpec spec = test::single_switch(4);
    spec.overrides = {{"nic", 2, -1, 0}};
    const Cluster cluster(spec);
    const std::string message = message_of([&] { (void)cluster.path(1, 2 * 8 + 5); });
    EXPECT_NE(message.find("device 1 (node 0 device 1) cannot reach device 21 (node 2 device 5)"), std::string::npos)
        << message;
    EXPECT_EQ(cluster.path(1, 3 * 8 + 5, NicChoice::own).hops, 4);
    EXPECT_EQ(cluster.path(1, 3 * 8 + 5).hops, 6);  // over NVLink first
    ClusterSpec alone = load_cluster("dgx-h100", 8);
    alone.overrides = {{"intra_node", -1, -1, 0}};
    EXPECT_NE(message_of([&] { (void)Cluster(alone).path(0, 1); }).find("device 0 cannot reach device 1"),
              std::string::npos);
}

TEST(Degraded, LinksHaveTheirFractionOfTheBandwidth) {
    ClusterSpec spec = rails(FabricKind::rail_optimised, 8, 4);
    spec.overrides = {{"nic", -1, 2, 0.5}, {"leaf 0 - spine 1", -1, -1, 0.25}, {"nic", 3, 2, 0.125}};
    const Cluster cluster(spec);
    EXPECT_EQ(cluster.path(2, 8 + 2).bandwidth.value(), 25e9);
    EXPECT_EQ(cluster.path(3, 8 + 3).bandwidth.value(), 50e9);
    EXPECT_EQ(cluster.path(3 * 8 + 2, 2).bandwidth.value(), 6.25e9);  // the later override wins
    EXPECT_EQ(cluster.path(8, 4 * 8).bandwidth.value(), 12.5e9);      // node 1 uses spine 1
    EXPECT_EQ(cluster.path(2 * 8, 4 * 8).bandwidth.value(), 50e9);
    EXPECT_EQ(cluster.path(4 * 8, 8).bandwidth.value(), 50e9);
}

TEST(Overrides, ThoseThatMatchNoLinkAreRefused) {
    struct Case {
        LinkOverride change;
        const char* expected;
    };
    for (const Case& bad :
         {Case{{"leaf 0 - spine 99", -1, -1, 0}, "'spine 99'"},
          Case{{"leaf 0 - leaf 1", -1, -1, 0}, "'leaf 0 - leaf 1'"},
          Case{{"node 8 nic 0 - leaf 0", -1, -1, 0}, "'node 8 nic 0'"},
          Case{{"nics", -1, -1, 0}, "intra_node, host, nic, trunk, core_trunk, socket"},
          Case{{"nic", 8, -1, 0}, "'nic' of node 8"}, Case{{"core_trunk", -1, -1, 0}, "'core_trunk'"}}) {
        ClusterSpec spec = rails(FabricKind::rail_optimised, 8, 4);
        spec.overrides = {bad.change};
        const std::string message = message_of([&] { (void)Cluster(spec); });
        EXPECT_NE(message.find(bad.expected), std::string::npos) << message;
        EXPECT_TRUE(message.starts_with("cluster rail_optimised: overrides: link: ")) << message;
    }
}

TEST(Pxn, LeavesThroughTheNicOnTheReceiversRail) {
    const Cluster cluster(rails(FabricKind::rail_optimised, 8, 4));
    const Path own = cluster.path(2, 8 + 5, NicChoice::own), pxn = cluster.path(2, 8 + 5);
    EXPECT_EQ(switches_on(cluster, stops_of(cluster, 2, 8 + 5, own)), 3);
    const std::vector<VertexId> stops = stops_of(cluster, 2, 8 + 5, pxn);
    EXPECT_EQ(switches_on(cluster, stops), 1);
    EXPECT_EQ(stops[2], 5);
    EXPECT_EQ(stops[3], cluster.nic(0, 5));
    EXPECT_EQ(cluster.path(5, 8 + 5, NicChoice::own).links, cluster.path(5, 8 + 5).links);
}

TEST(Pxn, NeedsNodeSwitches) {
    for (const std::int64_t sockets : {0, 2}) {
        ClusterSpec spec = rails(FabricKind::rail_optimised, 8, 4);
        spec.node_switches = 0;
        spec.inside.sockets = sockets;
        spec.inside.socket_link = test::cable(20);
        const Cluster cluster(spec);
        EXPECT_FALSE(cluster.forwards_to_rails());
        EXPECT_EQ(cluster.path(2, 8 + 5).links, cluster.path(2, 8 + 5, NicChoice::own).links);
    }
}

TEST(PathClass, PairsOfOneClassHaveEqualFigures) {
    std::size_t classified = 0;
    for (const NicChoice choice : {NicChoice::own, NicChoice::pxn}) {
        for (ClusterSpec spec : every_fabric()) {
            spec.routing.nic = choice;
            const Cluster cluster(spec);
            SCOPED_TRACE(label(cluster));
            std::map<int, Path> first;
            for (std::int64_t a = 0; a < cluster.device_count(); ++a) {
                for (std::int64_t b = 0; b < cluster.device_count(); ++b) {
                    const int kind = cluster.path_class(a, b);
                    ASSERT_LT(kind, Cluster::kPathClasses);
                    if (kind < 0 || a == b) continue;
                    const Path path = cluster.path(a, b);
                    const Path& known = first.try_emplace(kind, path).first->second;
                    ASSERT_EQ(path.latency, known.latency) << a << " to " << b;
                    ASSERT_EQ(path.hops, known.hops) << a << " to " << b;
                    ASSERT_EQ(path.effective_bandwidth, known.effective_bandwidth) << a << " to " << b;
                }
            }
            classified += first.empty() ? 0 : 1;
        }
    }
    EXPECT_GE(classified, 14U);
}

TEST(Pxn, IsTheOnlyRouteBetweenRailsWithoutCommonSpines) {
    const Cluster cluster(rails(FabricKind::rail_only, 10, 4));
    const std::vector<VertexId> stops = stops_of(cluster, 2, 8 + 5, cluster.path(2, 8 + 5));
    EXPECT_EQ(stops[2], 5);
    EXPECT_EQ(cluster.vertex(stops[1]).kind, VertexKind::node_switch);
    EXPECT_EQ(switches_on(cluster, stops), 1);
    ClusterSpec without = rails(FabricKind::rail_only, 10, 4);
    without.node_switches = 0;
    without.inside.sockets = 2;
    without.inside.socket_link = test::cable(20);
    EXPECT_EQ(switches_on(Cluster(without), stops_of(Cluster(without), 2, 13, Cluster(without).path(2, 13))), 1);
}

TEST(Routes, ConcurrentReadersAgree) {
    const Cluster cluster(fat_tree(54, 3, 6)), alone(fat_tree(54, 3, 6));
    std::vector<std::vector<LinkId>> seen(4);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < seen.size(); ++t) {
        threads.emplace_back([&, t] {
            for (std::int64_t b = 0; b < cluster.device_count(); b += 3) {
                const Path path = cluster.path(b % 7, b);
                seen[t].insert(seen[t].end(), path.links.begin(), path.links.end());
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    std::vector<LinkId> expected;
    for (std::int64_t b = 0; b < cluster.device_count(); b += 3) {
        const Path path = alone.path(b % 7, b);
        expected.insert(expected.end(), path.links.begin(), path.links.end());
    }
    for (const std::vector<LinkId>& links : seen) EXPECT_EQ(links, expected);
}

/// Checks for every pair of edge switches that distance and links of the first equal-cost routes are those of a search.
void expect_as_searched(const Cluster& cluster) {
    SCOPED_TRACE(label(cluster));
    const SwitchRoutes searched(cluster.graph());
    const std::int64_t edges = std::max(cluster.fabric().leaves(), cluster.fabric().routers());
    for (std::int64_t a = 0; a < edges; ++a) {
        for (std::int64_t b = 0; b < edges; ++b) {
            const VertexId from = cluster.fabric_switch(a), to = cluster.fabric_switch(b);
            const std::int64_t distance = searched.distance(from, to);
            ASSERT_EQ(cluster.fabric_routes().distance(a, b), distance) << a << " to " << b;
            for (std::uint64_t choice = 0; distance >= 0 && choice < 11; ++choice) {
                std::vector<LinkId> expected, found;
                searched.append_route(from, to, choice, expected);
                cluster.fabric_routes().for_each_link(a, b, choice, [&](LinkId link) { found.push_back(link); });
                ASSERT_EQ(found, expected) << a << " to " << b << " by " << choice;
            }
        }
    }
}

TEST(FabricRoutes, GeometryAndSearchAgree) {
    std::vector<ClusterSpec> specs = every_fabric();
    specs.push_back(torus({2, 2}));
    specs.push_back(torus({1, 6, 3}));
    specs.push_back(rails(FabricKind::rail_only, 3, 4));  // one unit: no spines
    specs.push_back(rails(FabricKind::rail_optimised, 3, 4));
    for (const ClusterSpec& spec : specs) expect_as_searched(Cluster(spec));
}

TEST(FabricRoutes, GeometryAndSearchAgreeAroundFailedLinks) {
    for (const ClusterSpec& healthy : every_fabric()) {
        const Cluster whole(healthy);
        const RandomStream random(11, "one failed link of " + label(whole));
        std::vector<LinkId> trunks;
        for (LinkId id = 0; id < whole.link_count(); ++id) {
            const LinkKind kind = whole.link(id).kind;
            if (kind == LinkKind::trunk || kind == LinkKind::core_trunk) trunks.push_back(id);
        }
        for (std::uint64_t draw = 0; draw < 6 && !trunks.empty(); ++draw) {
            ClusterSpec spec = healthy;
            for (std::uint64_t i = 0; i < 1 + draw / 2; ++i) {
                const Link& link = whole.link(trunks[random.below(8 * draw + i, trunks.size())]);
                spec.overrides.push_back(
                    {whole.graph().name(link.from) + " - " + whole.graph().name(link.to), -1, -1, 0});
            }
            const Cluster cluster(spec);
            expect_as_searched(cluster);
        }
    }
}

TEST(FabricRoutes, ADragonflyHasDiameterThreeAndATorusTakesTheShorterSide) {
    const Cluster fly(dragonfly(33, 9, 4, 1, 2));
    for (std::int64_t b = 0; b < 36; ++b) EXPECT_LE(fly.fabric_routes().distance(0, b), 3);
    const Cluster ring(torus({4, 5}));
    for (std::int64_t b = 0; b < 20; ++b) {
        const std::int64_t x = b % 4, y = b / 4;
        EXPECT_EQ(ring.fabric_routes().distance(0, b), std::min(x, 4 - x) + std::min(y, 5 - y));
    }
    EXPECT_THROW((void)ring.fabric_routes().searched().distance(0, ring.fabric_switch(1)), BugError);
}

}  // namespace
}  // namespace orrery::topologies
