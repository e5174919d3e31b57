// Compares link loads with closed forms on uniform networks, with explicit transfers routed one by one on small
// clusters, and with hand-computed values.
#include "sim/network/algorithms/link_loads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/unit/network/closed_form.h"
#include "tests/unit/network/collective_kinds.h"
#include "tests/unit/network/round_cluster.h"
#include "tests/unit/network/schedules/schedule.h"
#include "tests/unit/topologies/fabric_clusters.h"

namespace orrery::sim::algorithms {
namespace {

using program::CommKind;
using rounded::strided;
using topologies::Cluster;
using topologies::ClusterSpec;
using topologies::LinkId;

/// n devices, each on its own node below one leaf, or all on the switch of one node; 10 GB/s and 4 us between any two.
ClusterSpec uniform_cluster(std::int64_t devices, bool on_one_node) {
    ClusterSpec spec = topologies::load_cluster("dgx-h100", 8);
    spec.nodes = on_one_node ? 1 : devices;
    spec.devices_per_node = on_one_node ? devices : 1;
    spec.nics_per_node = 1;
    spec.node_switches = 1;
    spec.nodes_per_scalable_unit = devices;
    spec.fabric_shape = {};
    for (topologies::LinkProfile* link : {&spec.intra_node, &spec.nic, &spec.host_link}) {
        link->bandwidth_gb_per_s_per_direction.value = 20;
        link->efficiency.value = 0.5;
        link->latency_us.value = on_one_node ? 2 : 1;
    }
    return spec;
}

TEST(VisitingOrder, VisitsEachPcieSwitchOnce) {
    using Devices = std::vector<std::int64_t>;
    ClusterSpec spec = topologies::load_cluster("pcie-l40s", 8);
    EXPECT_EQ(visiting_order(Cluster(spec), {5, 0, 3, 0}), (Devices{0, 3, 5}));
    spec.inside.device_ports = {0, 1, 2, 3, 0, 1, 2, 3};
    EXPECT_EQ(visiting_order(Cluster(spec), {0, 1, 2, 4, 5}), (Devices{0, 4, 1, 5, 2}));
    EXPECT_EQ(visiting_order(Cluster(topologies::load_cluster("dgx-h100", 16)), {9, 8, 1}), (Devices{1, 8, 9}));
}

void expect_closed_forms(std::int64_t n, bool on_one_node) {
    const Cluster cluster(uniform_cluster(n, on_one_node));
    const Group group = on_one_node ? Group::even(1, n) : Group::flat(n);
    const std::vector<std::int64_t> devices = strided(0, n, 1);
    LinkLoads loads(cluster);
    for (const Algorithm algorithm : all_algorithms()) {
        if (row_of(algorithm).manner.in_switches == InSwitches::of_nodes && !on_one_node) continue;
        for (const CommKind kind : kKinds) {
            if (!why_not(algorithm, kind, group).empty()) continue;
            for (const std::int64_t chunks : {1, 5}) {
                if (chunks > 1 && (!row_of(algorithm).manner.chunks || row_of(algorithm).manner.streamed)) continue;
                SCOPED_TRACE(std::string(name_of(algorithm)) + " " + std::string(program::name_of(kind)) + " " +
                             std::to_string(n));
                const ClosedForm form = closed_form(algorithm, kind, group, chunks);
                const CollectiveLoads found = loads.of(algorithm, kind, devices, chunks);
                EXPECT_NEAR(found.steps(), form.steps, 1e-9);
                EXPECT_NEAR(found.seconds(1e9), form.seconds(1e9, 4e-6, 1e-10), 1e-9 * found.seconds(1e9));
            }
        }
    }
}

TEST(LinkLoads, EqualTheClosedFormsOnUniformNetworks) {
    for (const std::int64_t n : {2, 3, 4, 5, 6, 7, 8, 12, 15, 16, 31, 33}) {
        expect_closed_forms(n, true);
        expect_closed_forms(n, false);
    }
}

/// Traffic through a node's switches is striped over all of them: the number of parallel links at this one.
double stripes_beside(const Cluster& cluster, const topologies::Path& path, LinkId link) {
    std::int64_t from = 0, to = 0;
    for (const LinkId other : path.links) {
        from += cluster.link(other).from == cluster.link(link).from ? 1 : 0;
        to += cluster.link(other).to == cluster.link(link).to ? 1 : 0;
    }
    return static_cast<double>(std::max(from, to));
}

/// The coefficients that the schedule's transfers put on the links of their routes.
std::map<LinkId, double> routed(Algorithm algorithm, CommKind kind, const Cluster& cluster,
                                const std::vector<std::int64_t>& devices) {
    const Group group = Group::of(cluster, devices);
    const std::int64_t bytes = std::int64_t{1} << 40;
    const Schedule schedule = make_schedule(algorithm, {kind, bytes, 0, {}}, group);
    std::map<LinkId, double> carried;
    for (std::int64_t round = 0; round < schedule.rounds(); ++round) {
        for (Party party = 0; party < schedule.parties(); ++party) {
            schedule.sends(round, party, [&](const Transfer& t) {
                const std::int64_t from = devices[static_cast<std::size_t>(t.from)];
                const std::int64_t to = devices[static_cast<std::size_t>(t.to)];
                const bool member_there = std::any_of(devices.begin(), devices.end(), [&](std::int64_t device) {
                    return cluster.node_of(device) == cluster.node_of(from) &&
                           cluster.rail_of(device) == cluster.rail_of(to);
                });
                const topologies::Path path =
                    cluster.path(from, to, member_there ? cluster.spec().routing.nic : topologies::NicChoice::own);
                for (const LinkId link : path.links) {
                    carried[link] += static_cast<double>(t.slice.bytes) / static_cast<double>(bytes) /
                                     stripes_beside(cluster, path, link);
                }
            });
        }
    }
    return carried;
}

void expect_loads_of_transfers(const ClusterSpec& spec, const std::vector<std::int64_t>& devices) {
    const Cluster cluster(spec);
    const Group group = Group::of(cluster, devices);
    LinkLoads loads(cluster);
    for (const Algorithm algorithm : all_algorithms()) {
        if (row_of(algorithm).manner.in_switches != InSwitches::none) continue;  // checked by hand below
        for (const CommKind kind : kKinds) {
            if (kind == CommKind::exchange || !why_not(algorithm, kind, group).empty()) continue;
            SCOPED_TRACE(std::string(name_of(algorithm)) + " " + std::string(program::name_of(kind)) + " on " +
                         std::to_string(devices.size()) + " devices");
            std::map<LinkId, double> expected = routed(algorithm, kind, cluster, devices);
            double all = 0, sum = 0;
            for (const auto& [link, coefficient] : expected) all += coefficient;
            LinkId last = -1;
            for (const LinkLoad& load : loads.of(algorithm, kind, devices).links) {
                EXPECT_GT(load.link, last);
                last = load.link;
                EXPECT_NEAR(load.coefficient, expected[load.link], 1e-9) << load.link;
                sum += load.coefficient;
            }
            EXPECT_NEAR(sum, all, 1e-6);
        }
    }
}

std::vector<ClusterSpec> fabrics() {
    const ClusterSpec rails = topologies::load_cluster("dgx-h100", 32);
    ClusterSpec blocks = rails;  // two nodes on a leaf, so that most routes pass a spine
    blocks.nodes_per_scalable_unit = 2;
    ClusterSpec shared = rails;  // two devices on a NIC
    shared.nics_per_node = 4;
    ClusterSpec one_switch = blocks;
    one_switch.node_switches = 1;
    return {rails, blocks, shared, one_switch};
}

TEST(LinkLoads, EqualTheLoadsOfRoutedTransfers) {
    for (const ClusterSpec& spec : fabrics()) {
        expect_loads_of_transfers(spec, strided(0, 32, 1));
        expect_loads_of_transfers(spec, strided(8, 8, 1));
        expect_loads_of_transfers(spec, strided(1, 4, 8));
        expect_loads_of_transfers(spec, {0, 1, 2, 8, 9, 10, 16, 17, 18});
        expect_loads_of_transfers(spec, {0, 1, 2, 8});
        expect_loads_of_transfers(spec, {3, 8, 9, 10, 11, 12, 24});
        expect_loads_of_transfers(spec, {5, 14});
    }
}

TEST(LinkLoads, EqualTheLoadsOfRoutedTransfersOnEveryKindOfFabric) {
    for (const ClusterSpec& spec : topologies::test::every_fabric()) {
        SCOPED_TRACE(spec.name);
        expect_loads_of_transfers(spec, strided(0, 24, 1));
        expect_loads_of_transfers(spec, strided(1, spec.nodes, 8));
        expect_loads_of_transfers(spec, {0, 1, 2, 8, 9, 10, 17, 18, 19});
    }
}

/// Sums of the coefficients of one kind of links out of and into a device.
struct Ports {
    double out = 0, in = 0;
};
Ports ports(const Cluster& cluster, const CollectiveLoads& loads, topologies::LinkKind kind, std::int64_t device) {
    Ports result;
    for (const LinkLoad& load : loads.links) {
        const topologies::Link& link = cluster.link(load.link);
        if (link.kind != kind) continue;
        const auto vertex = static_cast<topologies::VertexId>(device);
        if (link.from == vertex) result.out += load.coefficient;
        if (link.to == vertex) result.in += load.coefficient;
    }
    return result;
}

TEST(LinkLoads, AgreeWithHandComputedExamples) {
    // Four nodes of 8: rotated rings put 7/8 of 62/32 S on every port and 1/8 on every NIC.
    const Cluster cluster(topologies::load_cluster("dgx-h100", 32));
    const std::vector<std::int64_t> all = strided(0, 32, 1);
    const auto of = [&](Algorithm algorithm) { return links_of(algorithm, CommKind::all_reduce, all, cluster); };
    const auto intra = topologies::LinkKind::intra_node;
    const auto host = topologies::LinkKind::host;
    for (const std::int64_t device : {0, 13, 31}) {
        const CollectiveLoads ring = of(Algorithm::ring);
        EXPECT_NEAR(ports(cluster, ring, intra, device).out, 62.0 / 32 * 7 / 8, 1e-12);
        EXPECT_NEAR(ports(cluster, ring, host, device).out, 62.0 / 32 / 8, 1e-12);
        EXPECT_NEAR(ports(cluster, ring, host, device).in, 62.0 / 32 / 8, 1e-12);
        const CollectiveLoads layered = of(Algorithm::hierarchical);
        EXPECT_NEAR(ports(cluster, layered, intra, device).out, 2 * 7.0 / 8, 1e-12);
        EXPECT_NEAR(ports(cluster, layered, host, device).out, 2 * 3.0 / 4 / 8, 1e-12);
        // NVLS sends the buffer to be reduced and the own part to be multicast: 9/8; then trees between 4 nodes.
        const CollectiveLoads nvls = of(Algorithm::nvls);
        EXPECT_NEAR(ports(cluster, nvls, intra, device).out, 9.0 / 8, 1e-12);
        EXPECT_NEAR(ports(cluster, nvls, intra, device).in, 9.0 / 8, 1e-12);
        EXPECT_LE(ports(cluster, nvls, host, device).in, 2.0 / 8);
        // SHARP: once to the switch, once back.
        const CollectiveLoads sharp = of(Algorithm::collnet);
        EXPECT_NEAR(ports(cluster, sharp, host, device).out, 1.0 / 8, 1e-12);
        EXPECT_NEAR(ports(cluster, sharp, host, device).in, 1.0 / 8, 1e-12);
        EXPECT_NEAR(ports(cluster, sharp, intra, device).out, 2 * 7.0 / 8, 1e-12);
    }
    EXPECT_NEAR(of(Algorithm::nvls).steps(), 6, 1e-12);
}

TEST(LinkLoads, NetworkTreesMergeInTheFirstNodesSwitch) {
    // Two nodes on a leaf, four in all: the second leaf of a rail sends one reduced stream up and gets one back.
    ClusterSpec spec = topologies::load_cluster("dgx-h100", 32);
    spec.nodes_per_scalable_unit = 2;
    const Cluster cluster(spec);
    const CollectiveLoads loads = links_of(Algorithm::collnet, CommKind::all_reduce, strided(0, 32, 1), cluster);
    double trunk = 0;
    for (const LinkLoad& load : loads.links) {
        if (cluster.link(load.link).kind == topologies::LinkKind::trunk) trunk += load.coefficient;
    }
    // Eight rails, leaf to spine to leaf, both ways, an eighth of the message each.
    EXPECT_NEAR(trunk, 8 * 2 * 2 / 8.0, 1e-12);
    // The streams of any number of leaves merge in a spine.
    topologies::ClusterSpec many = topologies::load_cluster("dgx-h100", 256);
    many.nodes_per_scalable_unit = 2;
    many.fabric_shape = {};
    const CollectiveLoads all = links_of(Algorithm::collnet, CommKind::all_reduce, strided(0, 256, 1), Cluster(many));
    EXPECT_NEAR(all.seconds_per_byte(), loads.seconds_per_byte(), 1e-18);
}

TEST(LinkLoads, LargeAllToAllsSampleTheFabric) {
    topologies::ClusterSpec spec = topologies::load_cluster("dgx-h100", 1024);
    spec.routing.nic = topologies::NicChoice::own;
    const Cluster cluster(spec);
    const std::vector<std::int64_t> all = strided(0, 1024, 1);
    const CollectiveLoads loads = links_of(Algorithm::direct, CommKind::all_to_all, all, cluster);
    for (const std::int64_t device : {0, 77, 1023}) {
        EXPECT_NEAR(ports(cluster, loads, topologies::LinkKind::intra_node, device).out, 7.0 / 1024, 1e-12);
        EXPECT_NEAR(ports(cluster, loads, topologies::LinkKind::host, device).out, 1016.0 / 1024, 1e-12);
        EXPECT_NEAR(ports(cluster, loads, topologies::LinkKind::host, device).in, 1016.0 / 1024, 1e-12);
    }
    // The fabric does not block, and the sample must not exceed the NIC's load by much.
    const double nic =
        cluster.spec().nic.bandwidth_gb_per_s_per_direction.value * 1e9 * cluster.spec().nic.efficiency.value;
    EXPECT_NEAR(loads.seconds_per_byte() * nic, 1016.0 / 1024, 0.25);
}

TEST(LinkLoads, ForwardingKeepsAnAllToAllOnItsRails) {
    ClusterSpec spec = topologies::load_cluster("dgx-h100", 256);  // one scalable unit
    const std::vector<std::int64_t> all = strided(0, 256, 1);
    const auto trunks = [](const Cluster& cluster, const CollectiveLoads& loads) {
        return std::count_if(loads.links.begin(), loads.links.end(), [&](const LinkLoad& load) {
            return cluster.link(load.link).kind == topologies::LinkKind::trunk;
        });
    };
    const Cluster forwarding(spec);
    const CollectiveLoads loads = links_of(Algorithm::direct, CommKind::all_to_all, all, forwarding);
    EXPECT_EQ(trunks(forwarding, loads), 0);
    for (const std::int64_t device : {0, 77, 255}) {
        // 7 of 8 bytes that leave the node pass NVLink first, and equally many of other members arrive over it.
        const auto port = ports(forwarding, loads, topologies::LinkKind::intra_node, device);
        EXPECT_NEAR(port.out, (7 + 248 * 7 / 8.0) / 256, 1e-12);
        EXPECT_NEAR(port.in, (7 + 248 * 7 / 8.0) / 256, 1e-12);
        EXPECT_NEAR(ports(forwarding, loads, topologies::LinkKind::host, device).out, 248.0 / 256, 1e-12);
    }
    spec.routing.nic = topologies::NicChoice::own;
    const Cluster own(spec);
    EXPECT_GT(trunks(own, links_of(Algorithm::direct, CommKind::all_to_all, all, own)), 0);
}

TEST(LinkLoads, RefuseAlgorithmsThatNeedMissingSwitches) {
    ClusterSpec cores = uniform_cluster(4, true);
    cores.node_switches = 0;  // cores communicate through memory
    const Cluster cluster(cores);
    EXPECT_THROW((void)links_of(Algorithm::nvls, CommKind::all_reduce, strided(0, 4, 1), cluster), InputError);
    LinkLoads loads(cluster);
    EXPECT_THROW((void)loads.of(Algorithm::nvls, CommKind::all_reduce, strided(0, 4, 1)), InputError);
    // The failed call left no sums behind.
    EXPECT_NEAR(loads.of(Algorithm::ring, CommKind::all_gather, strided(0, 4, 1)).seconds_per_byte(), 0.75e-10, 1e-18);
    EXPECT_TRUE(loads.of(Algorithm::ring, CommKind::all_reduce, strided(0, 1, 1)).phases.empty());
}

}  // namespace
}  // namespace orrery::sim::algorithms
