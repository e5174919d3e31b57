// The NIC that each device sends through.
#include <gtest/gtest.h>

#include "tests/unit/topologies/fabric_clusters.h"

namespace orrery::topologies {
namespace {

std::vector<std::int64_t> rails_of(const ClusterSpec& spec) {
    const NodeLayout layout(spec);
    std::vector<std::int64_t> rails;
    for (std::int64_t device = 0; device < layout.devices(); ++device) rails.push_back(layout.rail_of(device));
    return rails;
}

ClusterSpec with_inside(std::int64_t sockets, std::int64_t switches, std::int64_t nics,
                        std::vector<std::int64_t> device_ports, std::vector<std::int64_t> nic_ports) {
    ClusterSpec spec = test::nodes_with(FabricKind::single_switch, 4, nics);
    spec.inside.sockets = sockets;
    spec.inside.pcie_switches = switches;
    spec.inside.socket_link = test::cable(20);
    spec.inside.device_ports = std::move(device_ports);
    spec.inside.nic_ports = std::move(nic_ports);
    return spec;
}

using Rails = std::vector<std::int64_t>;

TEST(Rails, AreDistributedInOrderWhenEquallyNear) {
    EXPECT_EQ(rails_of(test::nodes_with(FabricKind::single_switch, 4, 8)), (Rails{0, 1, 2, 3, 4, 5, 6, 7}));
    EXPECT_EQ(rails_of(test::nodes_with(FabricKind::single_switch, 4, 4)), (Rails{0, 0, 1, 1, 2, 2, 3, 3}));
    EXPECT_EQ(rails_of(test::nodes_with(FabricKind::single_switch, 4, 1)), Rails(8, 0));
    EXPECT_EQ(rails_of(test::nodes_with(FabricKind::none, 1, 0)), Rails(8, -1));
    EXPECT_EQ(rails_of(with_inside(2, 4, 4, {}, {})), (Rails{0, 0, 1, 1, 2, 2, 3, 3}));
    EXPECT_EQ(rails_of(with_inside(2, 0, 4, {}, {})), (Rails{0, 0, 1, 1, 2, 2, 3, 3}));
}

TEST(Rails, FollowThePcieSwitchThenTheSocket) {
    // NICs are on the switches in reverse order.
    EXPECT_EQ(rails_of(with_inside(2, 4, 4, {0, 0, 1, 1, 2, 2, 3, 3}, {3, 2, 1, 0})), (Rails{3, 3, 2, 2, 1, 1, 0, 0}));
    // Socket 0 has switches 0 and 1 and one NIC, on switch 1; the other NICs are on socket 1.
    EXPECT_EQ(rails_of(with_inside(2, 4, 4, {0, 0, 1, 1, 2, 2, 3, 3}, {1, 2, 2, 3})), (Rails{0, 0, 0, 0, 1, 2, 3, 3}));
    // With both NICs on one socket, they are the nearest NICs of all devices, which share them in order.
    EXPECT_EQ(rails_of(with_inside(2, 0, 2, {0, 0, 0, 0, 1, 1, 1, 1}, {1, 1})), (Rails{0, 0, 0, 0, 1, 1, 1, 1}));
}

TEST(Rails, DetermineTheRoute) {
    const Cluster cluster(with_inside(2, 4, 4, {0, 0, 1, 1, 2, 2, 3, 3}, {3, 2, 1, 0}));
    EXPECT_EQ(cluster.rail_of(8 + 7), 0);
    const Path path = cluster.path(0, 8);
    EXPECT_EQ(path.hops, 6);  // device, PCIe switch, NIC, switch and back: no CPU
    for (const LinkId id : path.links) EXPECT_NE(cluster.vertex(cluster.link(id).to).kind, VertexKind::cpu);
}

}  // namespace
}  // namespace orrery::topologies
