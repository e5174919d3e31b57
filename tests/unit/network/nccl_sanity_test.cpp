// Properties of every prediction, for all clusters, collectives, groups and sizes: finite, growing with the message,
// without cliffs where NCCL changes the algorithm or protocol, and no faster than the links.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "sim/network/collectives.h"
#include "tests/unit/network/round_cluster.h"
#include "topologies/cluster.h"

namespace orrery::sim {
namespace {

using program::CommKind;
using rounded::strided;
using topologies::Cluster;
using topologies::ClusterSpec;

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMost = std::int64_t{16} << 30;
constexpr CommKind kTunedKinds[]{CommKind::all_reduce, CommKind::all_gather, CommKind::reduce_scatter,
                                 CommKind::broadcast,  CommKind::reduce,     CommKind::all_to_all,
                                 CommKind::send};
/// NCCL chooses by estimates, so a message may be faster than a smaller one: over PCIe it keeps LL for too long.
constexpr double kLeastGrowth = 0.6;
/// Time at the first size of a new way over the time that the previous way would take there. NCCL's tuner leaves LL
/// early on Ampere (all-reduce of 2 A100 at 1 MiB, measured), and trees early among three or more nodes.
constexpr double kHighestCliff = 1.6, kHighestOfTheEarly = 2.0;

CollectiveOptions way_of(const CollectiveCost& cost, const CollectiveOptions& how) {
    CollectiveOptions forced = how;
    for (const Algorithm algorithm :
         {Algorithm::ring, Algorithm::double_binary_tree, Algorithm::nvls, Algorithm::nvls_tree, Algorithm::pat}) {
        const bool is_chain = cost.algorithm_name() == "chain" && algorithm == Algorithm::ring;
        if (is_chain || cost.algorithm == algorithm) forced.algorithm = algorithm;
    }
    for (const NcclProtocol protocol : {NcclProtocol::ll, NcclProtocol::ll128, NcclProtocol::simple}) {
        if (cost.detail == name_of(protocol)) forced.protocol = protocol;
    }
    return forced;
}

/// One group and collective over all sizes.
struct Sweep {
    const ClusterSpec& spec;
    const GroupPlacement& placement;
    CommKind kind;
    CollectiveOptions how;
    std::string name;

    [[nodiscard]] CollectiveCost at(std::int64_t bytes, const CollectiveOptions& options) const {
        return collective_cost(kind, bytes, placement, spec, options);
    }
    void check_links(std::int64_t bytes, const CollectiveCost& cost) const {
        const auto nominal = [](const topologies::LinkProfile& link) {
            return link.bandwidth_gb_per_s_per_direction.value * kGigabyte;
        };
        EXPECT_LE(static_cast<double>(cost.intra_node_bytes), cost.seconds * nominal(spec.intra_node))
            << name << ", " << bytes;
        if (placement.nodes == 1) return;
        const double nics =
            std::max(1.0, static_cast<double>(placement.min_nics) / static_cast<double>(placement.max_members));
        EXPECT_LE(static_cast<double>(cost.nic_bytes), cost.seconds * nics * nominal(spec.nic))
            << name << ", " << bytes;
    }
    void check() const {
        CollectiveCost before;
        for (std::int64_t bytes = kKiB; bytes <= kMost; bytes *= 2) {
            const CollectiveCost cost = at(bytes, how);
            ASSERT_TRUE(std::isfinite(cost.seconds) && cost.seconds > 0) << name << ", " << bytes;
            check_links(bytes, cost);
            if (bytes > kKiB) check_step(bytes, before, cost);
            before = cost;
        }
    }
    void check_step(std::int64_t bytes, const CollectiveCost& before, const CollectiveCost& cost) const {
        const bool same_way = cost.algorithm == before.algorithm && cost.detail == before.detail;
        EXPECT_GE(cost.seconds, (same_way ? 1 : kLeastGrowth) * before.seconds)
            << name << ", " << bytes << ": " << before.algorithm_name() << before.detail << " " << cost.algorithm_name()
            << cost.detail;
        if (same_way || cost.algorithm_name() == "direct") return;
        const bool is_early = spec.device.compute_capability == 80 || placement.nodes > 2;
        EXPECT_LE(cost.seconds,
                  (is_early ? kHighestOfTheEarly : kHighestCliff) * at(bytes, way_of(before, how)).seconds)
            << name << ", " << bytes << ": " << before.algorithm_name() << before.detail << " " << cost.algorithm_name()
            << cost.detail;
    }
};

void check_group(const ClusterSpec& spec, const std::vector<std::int64_t>& devices) {
    const Cluster cluster(spec);
    const GroupPlacement placement = place_group(cluster, devices);
    for (const CommKind kind : kTunedKinds) {
        if (kind == CommKind::send && devices.size() != 2) continue;
        for (const DType dtype : {DType::fp16, DType::uint8}) {
            const std::string name = spec.name + ", " + std::string(program::name_of(kind)) + " of " +
                                     std::to_string(devices.size()) + " on " + std::to_string(placement.nodes) + ", " +
                                     std::string(name_of(dtype));
            Sweep{spec, placement, kind, {.dtype = dtype}, name}.check();
        }
    }
}

std::vector<ClusterSpec> gpu_presets() {
    std::vector<ClusterSpec> presets;
    for (const std::string& name : topologies::preset_names()) {
        if (name != "local") presets.push_back(topologies::load_cluster(name, 1));
    }
    return presets;
}

TEST(NcclSanity, InsideANode) {
    for (const ClusterSpec& spec : gpu_presets()) {
        const std::int64_t most = std::min<std::int64_t>(8, spec.devices_per_node);
        for (std::int64_t ranks = 2; ranks <= most; ++ranks) check_group(spec, strided(0, ranks, 1));
        if (spec.devices_per_node > 8) check_group(spec, strided(0, spec.devices_per_node, 1));
    }
}

TEST(NcclSanity, AcrossNodes) {
    for (const ClusterSpec& one : gpu_presets()) {
        if (one.fabric == topologies::FabricKind::none) continue;
        const std::int64_t most = one.fabric == topologies::FabricKind::single_switch ? 8 : 64;
        for (const std::int64_t nodes : {std::int64_t{2}, std::int64_t{3}, std::int64_t{8}, most}) {
            const ClusterSpec spec = topologies::sized_for(one, nodes * one.devices_per_node);
            check_group(spec, strided(0, spec.device_count(), 1));
            check_group(spec, strided(0, nodes, one.devices_per_node));  // one member per node
        }
    }
}

}  // namespace
}  // namespace orrery::sim
