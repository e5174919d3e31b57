// Sizes, diameters and mean distances of fabrics compared with the literature.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "tests/unit/topologies/fabric_clusters.h"
#include "topologies/bisection.h"

namespace orrery::topologies {
namespace {

struct Reach {
    std::int64_t diameter = 0;
    double mean = 0;  // over all ordered pairs, each switch with itself included
};
/// Distances between the switches with NICs.
Reach reach_of(const Cluster& cluster) {
    const std::int64_t edges = std::max(cluster.fabric().leaves(), cluster.fabric().routers());
    Reach reach;
    for (std::int64_t a = 0; a < edges; ++a) {
        for (std::int64_t b = 0; b < edges; ++b) {
            const std::int64_t distance = cluster.fabric_routes().distance(a, b);
            EXPECT_GE(distance, 0) << a << " to " << b;
            reach.diameter = std::max(reach.diameter, distance);
            reach.mean += static_cast<double>(distance) / static_cast<double>(edges * edges);
        }
    }
    return reach;
}

// Dally, Towles, "Principles and Practices of Interconnection Networks" (2004), 5.2: a k-ary n-cube has diameter
// n floor(k/2) and mean distance n k / 4, or n (k/4 - 1/(4k)) for odd k.
TEST(PublishedFabrics, Tori) {
    for (const auto& dimensions : {std::vector<std::int64_t>{8, 8}, {5, 5}, {4, 4, 4}, {5, 5, 5}, {8, 6}}) {
        std::int64_t diameter = 0;
        double mean = 0;
        for (const std::int64_t k : dimensions) {
            diameter += k / 2;
            mean += static_cast<double>(k) / 4 - (k % 2 == 0 ? 0 : 1 / (4 * static_cast<double>(k)));
        }
        const Reach reach = reach_of(Cluster(test::torus(dimensions)));
        EXPECT_EQ(reach.diameter, diameter);
        EXPECT_NEAR(reach.mean, mean, 1e-9);
    }
}

// Kim, Dally, Scott, Abts, "Technology-driven, highly-scalable dragonfly topology" (ISCA 2008): with `a` routers per
// group, each with p terminals and h global links, there are a h + 1 groups and a p (a h + 1) terminals. A route
// crosses one global link and at most one local link on each side.
TEST(PublishedFabrics, DragonfliesOfFullSize) {
    for (const auto& [p, a, h] : {std::array<std::int64_t, 3>{1, 2, 1}, {2, 4, 2}, {3, 6, 3}}) {
        const std::int64_t groups = a * h + 1;
        const Cluster cluster(test::dragonfly(a * p * groups, groups, a, p, h));
        EXPECT_EQ(cluster.fabric().routers(), a * groups);
        EXPECT_EQ(reach_of(cluster).diameter, 3);
        // One global link for every pair of groups, and a router's ports are p + h + a - 1.
        for (std::int64_t router = 0; router < cluster.fabric().routers(); ++router) {
            const auto links = cluster.links_from(cluster.fabric_switch(router));
            EXPECT_EQ(std::count_if(links.begin(), links.end(),
                                    [](const Link& link) { return link.kind == LinkKind::core_trunk; }),
                      h);
            EXPECT_EQ(std::count_if(links.begin(), links.end(),
                                    [](const Link& link) { return link.kind == LinkKind::trunk; }),
                      a - 1);
        }
    }
    EXPECT_EQ(2 * 4 * (4 * 2 + 1), Cluster(test::dragonfly(72, 9, 4, 2, 2)).spec().nodes);  // the paper's figure 5
}

// Al-Fares, Loukissas, Vahdat, "A scalable, commodity data center network architecture" (SIGCOMM 2008): switches of k
// ports join k^3/4 hosts by k^2/2 edge, k^2/2 aggregation and k^2/4 core switches; (k/2)^2 equal routes between pods.
TEST(PublishedFabrics, FatTreesOfThreeLevels) {
    for (const std::int64_t k : {4, 6, 8}) {
        const Cluster cluster(test::fat_tree(k * k * k / 4, 3, k));
        EXPECT_EQ(cluster.fabric().leaves(), k * k / 2);
        EXPECT_EQ(cluster.fabric().spines(), k * k / 2);
        EXPECT_EQ(cluster.fabric().cores(), k * k / 4);
        EXPECT_EQ(reach_of(cluster).diameter, 4);
        std::set<std::vector<LinkId>> ways;
        for (std::uint64_t choice = 0; choice < static_cast<std::uint64_t>(k * k); ++choice) {
            std::vector<LinkId> way;
            cluster.fabric_routes().for_each_link(0, k * k / 2 - 1, choice, [&](LinkId link) { way.push_back(link); });
            ways.insert(way);
        }
        EXPECT_EQ(static_cast<std::int64_t>(ways.size()), k * k / 4);
    }
}

// Wang, Ghobadi, Shakeri, Zhang, Hasani, "Rail-only: a low-cost high-performance network for training LLMs with
// trillion parameters" (2023): rails without switches between them; other rails are reached over NVLink.
TEST(PublishedFabrics, RailOnly) {
    const Cluster cluster(test::rails(FabricKind::rail_only, 32, 8));
    const std::int64_t leaves = cluster.fabric().leaves();
    ASSERT_EQ(leaves, 4 * 8);
    for (std::int64_t a = 0; a < leaves; ++a) {
        for (std::int64_t b = 0; b < leaves; ++b) {
            EXPECT_EQ(cluster.fabric_routes().distance(a, b), a == b ? 0 : a % 8 == b % 8 ? 2 : -1);
        }
    }
    for (const std::int64_t far : {8, 31 * 8}) {
        const Path same = cluster.path(3, far + 3), other = cluster.path(3, far + 5);
        EXPECT_EQ(other.hops, same.hops + 2);  // to the node switch and to the device on that rail
        EXPECT_EQ(other.effective_bandwidth, same.effective_bandwidth);
    }
    // The bisection is that of spines joining all rails; each rail has as many spines as a unit has nodes.
    EXPECT_EQ(cluster.fabric().spines(), 8 * 8);
}

// NVIDIA DGX SuperPOD H100 reference architecture: scalable units of 32 nodes with 8 leaves each, switches of 64 ports.
// Eight units fill the ports of the spines; from the ninth on pods of four units are joined by cores.
TEST(PublishedFabrics, SuperPods) {
    const auto tiers = [](const char* preset, std::int64_t devices) {
        const Fabric fabric(load_cluster(preset, devices));
        return std::array{fabric.leaves(), fabric.spines(), fabric.clos().pods, fabric.cores()};
    };
    EXPECT_EQ(tiers("dgx-h100", 1024), (std::array<std::int64_t, 4>{32, 32, 1, 0}));
    EXPECT_EQ(tiers("dgx-h100", 2048), (std::array<std::int64_t, 4>{64, 32, 1, 0}));
    EXPECT_EQ(tiers("dgx-h100", 2056), (std::array<std::int64_t, 4>{72, 96, 3, 1024}));
    EXPECT_EQ(tiers("dgx-h100", 131'072), (std::array<std::int64_t, 4>{4096, 4096, 128, 1024}));
    // A100: units of 20 nodes, switches of 40 ports.
    EXPECT_EQ(tiers("dgx-a100", 800), (std::array<std::int64_t, 4>{40, 20, 1, 0}));
    EXPECT_EQ(tiers("dgx-a100", 1120), (std::array<std::int64_t, 4>{56, 80, 4, 320}));
}

TEST(PublishedFabrics, EveryPresetLimitsItsSwitchesOrItsNodes) {
    for (const std::string& name : preset_names()) {
        if (name == "local") continue;
        const ClusterSpec spec = load_cluster(name, 1);
        if (spec.fabric == FabricKind::none || spec.fabric == FabricKind::fat_tree) continue;
        const bool is_cloud = name == "aws-g5";  // its source says that the network is taken as one switch
        EXPECT_EQ(spec.fabric_shape.radix == 0, is_cloud) << name;
    }
}

// The Llama 3 Herd of Models (arXiv 2407.21783), 3.3.1: racks of 16 GPUs on two nodes, 192 racks in a pod, 1:7 above.
TEST(PublishedFabrics, MetasPods) {
    const ClusterSpec spec = load_cluster("grand-teton-h100", 24'576);
    const Cluster cluster(spec);
    EXPECT_EQ(cluster.fabric().clos().pods, 8);
    EXPECT_EQ(cluster.fabric().leaves(), 8 * 192);
    const double below = 3072 * cluster.links_from(cluster.nic(0, 0)).back().bandwidth.value();
    EXPECT_NEAR(below * 4 / bisection_bandwidth(cluster).value(), 7, 0.12);
    EXPECT_FALSE(may_block(Cluster(load_cluster("grand-teton-h100", 3072)))) << "full bisection in a pod";
    EXPECT_TRUE(may_block(cluster));
}

}  // namespace
}  // namespace orrery::topologies
