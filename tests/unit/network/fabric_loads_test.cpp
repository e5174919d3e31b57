#include "sim/network/fabric_loads.h"

#include <gtest/gtest.h>

#include "tests/unit/network/round_cluster.h"

namespace orrery::sim {
namespace {

using algorithms::Algorithm;
using program::CommKind;
using rounded::round_cluster;
using rounded::strided;
using topologies::Cluster;
using topologies::ClusterSpec;

constexpr double kNic = 20e9;  // effective bytes per second

/// 8 nodes of 8 devices, 4 nodes below each leaf, with one uplink for 4 NICs.
ClusterSpec narrow() {
    ClusterSpec spec = round_cluster(64);
    spec.nodes_per_scalable_unit = 4;
    spec.fabric_shape.oversubscription = {4};
    return spec;
}

double busiest(CommKind kind, const std::vector<std::int64_t>& devices, const ClusterSpec& spec,
               const char* algorithm) {
    CollectiveCost cost;
    cost.algorithm = algorithms::algorithm_named(algorithm);
    return fabric_seconds_per_byte(cost, kind, devices, Cluster(spec));
}

TEST(FabricLoads, BusiestTrunkMatchesHandComputedLoads) {
    // Device 0 of each node: the ring leaves each unit once; all four send to other units in an all-to-all.
    const std::vector<std::int64_t> rail = strided(0, 8, 8);
    EXPECT_NEAR(busiest(CommKind::all_reduce, rail, narrow(), "ring") * kNic, 2 * 7.0 / 8, 1e-5);
    EXPECT_NEAR(busiest(CommKind::all_to_all, rail, narrow(), "direct") * kNic, 4 * 4.0 / 8, 1e-5);
    EXPECT_NEAR(busiest(CommKind::send, {0, 32}, narrow(), "direct") * kNic, 1, 1e-5);
    EXPECT_EQ(busiest(CommKind::all_reduce, strided(0, 4, 8), narrow(), "ring"), 0);  // below one leaf
    EXPECT_EQ(busiest(CommKind::all_reduce, strided(0, 8, 1), narrow(), "ring"), 0);
    EXPECT_EQ(busiest(CommKind::all_reduce, rail, round_cluster(64), "ring"), 0);
    EXPECT_EQ(busiest(CommKind::all_reduce, rail, narrow(), "measured"), 0);
}

TEST(FabricLoads, CountNicsWhereLinksAreOverridden) {
    ClusterSpec spec = round_cluster(64);
    spec.overrides = {{"nic", 3, 0, 0.25}};
    EXPECT_NEAR(busiest(CommKind::all_reduce, strided(0, 8, 8), spec, "ring") * kNic, 4 * 2 * 7.0 / 8, 1e-5);
    EXPECT_NEAR(busiest(CommKind::all_reduce, strided(1, 8, 8), spec, "ring") * kNic, 2 * 7.0 / 8, 1e-5);
    spec.overrides = {{"nic", 3, 0, 0}};  // its traffic shares a neighbour's NIC
    EXPECT_GT(busiest(CommKind::all_to_all, strided(0, 64, 1), spec, "direct") * kNic, 1.1 * 56 / 64);
}

/// 8 devices, two on each PCIe switch, four on each socket. 10 GB/s on PCIe, 20 GB/s between the sockets.
ClusterSpec pcie_node() {
    ClusterSpec spec = topologies::load_cluster("pcie-l40s", 8);
    spec.host_link.bandwidth_gb_per_s_per_direction.value = 20;
    spec.host_link.efficiency.value = 0.5;
    spec.inside.socket_link.bandwidth_gb_per_s_per_direction.value = 25;
    spec.inside.socket_link.efficiency.value = 0.8;
    return spec;
}

TEST(FabricLoads, CountPcieLinksThatDevicesShare) {
    constexpr double kPcie = 10e9;
    const std::vector<std::int64_t> all = strided(0, 8, 1);
    ClusterSpec spec = pcie_node();
    EXPECT_NEAR(busiest(CommKind::all_reduce, strided(0, 4, 2), spec, "ring") * kPcie, 2 * 3.0 / 4, 1e-5);
    // Two devices of a switch send to six others. Four devices of a socket send to four others over a link as fast as
    // two PCIe links.
    EXPECT_NEAR(busiest(CommKind::all_to_all, all, spec, "direct") * kPcie, 2 * 6.0 / 8, 1e-5);
    spec.inside.socket_link.bandwidth_gb_per_s_per_direction.value = 12.5;
    EXPECT_NEAR(busiest(CommKind::all_to_all, all, spec, "direct") * kPcie, 4 * 4.0 / 8, 1e-5);
    // A ring visits each switch once, however devices are numbered.
    spec = pcie_node();
    spec.inside.device_ports = {0, 1, 2, 3, 0, 1, 2, 3};
    EXPECT_NEAR(busiest(CommKind::all_reduce, all, spec, "ring") * kPcie, 2 * 7.0 / 8, 1e-5);
    EXPECT_GT(busiest(CommKind::exchange, all, spec, "direct") * kPcie, 1.9);
}

TEST(FabricLoads, IgnorePcieIfNvlinkConnectsDevicesAndNicsAreNear) {
    ClusterSpec spec = round_cluster(32);
    spec.inside = pcie_node().inside;
    EXPECT_FALSE(may_over_subscribe(Cluster(spec)));
    spec.host_link.bandwidth_gb_per_s_per_direction.value = 25;
    spec.host_link.efficiency.value = 0.8;
    spec.inside.device_ports.assign(8, 0);
    spec.inside.nic_ports = {0, 1, 1, 2, 2, 3, 3, 3};
    EXPECT_FALSE(may_over_subscribe(Cluster(spec)));  // all use the one NIC that is near
    spec.inside.nic_ports.assign(8, 1);
    EXPECT_TRUE(may_over_subscribe(Cluster(spec)));
    EXPECT_NEAR(busiest(CommKind::all_reduce, strided(0, 4, 8), spec, "ring") * 20e9, 2 * 3.0 / 4, 1e-5);
}

TEST(FabricLoads, AcceptDevicesInAnyOrderAndGroupsThatCannotRunTheAlgorithm) {
    const Cluster cluster(narrow());
    FabricLoads loads(cluster);
    const auto links = [&](Algorithm algorithm, CommKind kind, const std::vector<std::int64_t>& devices) {
        return loads.of(algorithm, kind, devices).size();
    };
    EXPECT_EQ(links(Algorithm::ring, CommKind::all_reduce, {40, 0, 32, 8, 8}),
              links(Algorithm::ring, CommKind::all_reduce, {0, 8, 32, 40}));
    // Nodes with unequal members cannot run NVLS; they are taken to run a ring.
    EXPECT_EQ(links(Algorithm::nvls, CommKind::all_reduce, {0, 1, 32}),
              links(Algorithm::ring, CommKind::all_reduce, {0, 1, 32}));
    EXPECT_GT(links(Algorithm::ring, CommKind::all_to_all, {0, 32}), 0U);
    EXPECT_EQ(links(Algorithm::ring, CommKind::all_reduce, {32}), 0U);
    EXPECT_EQ(links(Algorithm::direct, CommKind::send, {32, 32}), 0U);
}

}  // namespace
}  // namespace orrery::sim
