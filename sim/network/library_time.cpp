#include "sim/network/library_time.h"

#include <algorithm>
#include <vector>

#include "sim/network/algorithms/library_choice.h"
#include "sim/network/algorithms/link_loads.h"

namespace orrery::sim {
namespace {

/// A cluster with exactly the group's nodes and the placement's ports and NICs.
topologies::Cluster cluster_of(const GroupPlacement& p) {
    topologies::ClusterSpec spec;
    spec.name = "the group's nodes";
    spec.device.host_runs_compute = true;
    spec.nodes = p.nodes;
    spec.devices_per_node = (p.ranks + p.nodes - 1) / p.nodes;
    const auto link = [](BytesPerSecond bandwidth, Picoseconds two_hops) {
        topologies::LinkProfile profile;
        profile.bandwidth_gb_per_s_per_direction.value = bandwidth.value() / kGigabyte;
        profile.efficiency.value = 1;
        profile.latency_us.value = to_seconds(two_hops) * 1e6 / 2;
        return profile;
    };
    spec.intra_node = link(p.intra_bandwidth.value() > 0 ? p.intra_bandwidth : p.inter_bandwidth, p.intra_latency);
    if (p.nodes > 1) {
        spec.nic = link(p.inter_bandwidth, p.inter_latency);
        spec.host_link = link(p.inter_bandwidth * static_cast<double>(spec.devices_per_node), Picoseconds());
        spec.fabric = topologies::FabricKind::rail_optimised;
        spec.nodes_per_scalable_unit = p.nodes;
        const std::int64_t sharers = std::max<std::int64_t>(p.nic_sharers, 1);
        spec.nics_per_node = (spec.devices_per_node + sharers - 1) / sharers;
        while (spec.devices_per_node % spec.nics_per_node != 0) --spec.nics_per_node;
    }
    return topologies::Cluster(spec);
}

}  // namespace

LibraryTime library_time(program::CommKind kind, std::int64_t bytes, const GroupPlacement& placement,
                         topologies::CollectiveLibrary library) {
    const topologies::Cluster cluster = cluster_of(placement);
    std::vector<std::int64_t> devices;
    for (std::int64_t node = 0; node < placement.nodes; ++node) {
        const std::int64_t here =
            placement.ranks / placement.nodes + (node < placement.ranks % placement.nodes ? 1 : 0);
        for (std::int64_t j = 0; j < here; ++j) devices.push_back(node * cluster.spec().devices_per_node + j);
    }
    const auto [algorithm, chunks] = algorithms::library_choice(library, kind, placement.ranks, bytes);
    const algorithms::CollectiveLoads loads = algorithms::links_of(algorithm, kind, devices, cluster, chunks);
    const double step = algorithms::step_seconds(library);
    return {algorithm, loads.seconds(0, step), loads.seconds(static_cast<double>(bytes), step)};
}

}  // namespace orrery::sim
