// Clusters with round figures, and groups on them.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/network/collectives.h"

namespace orrery::sim::rounded {

inline constexpr std::int64_t kMiB = 1 << 20;
inline constexpr std::int64_t kGiB = 1 << 30;

inline std::vector<std::int64_t> strided(std::int64_t first, std::int64_t count, std::int64_t stride) {
    std::vector<std::int64_t> devices;
    for (std::int64_t i = 0; i < count; ++i) devices.push_back(first + i * stride);
    return devices;
}

inline GroupPlacement place(const topologies::Cluster& cluster, const std::vector<std::int64_t>& devices) {
    return place_group(cluster, devices);
}

/// A cluster with round figures in GB/s: NVLink 400 at 0.75, NIC 40 at 0.5, LL limits 100 / 20 / 10 (for 1, 2, more
/// nodes). No link latency, only NCCL's published figures, and traffic leaves through the sender's own NIC.
inline topologies::ClusterSpec round_cluster(std::int64_t devices) {
    topologies::ClusterSpec spec = topologies::load_cluster("dgx-h100", devices);
    spec.device.nccl.reset();
    spec.nic.nccl.reset();
    spec.routing.nic = topologies::NicChoice::own;
    spec.fabric_shape = {};
    spec.intra_node.bandwidth_gb_per_s_per_direction.value = 400;
    spec.intra_node.efficiency.value = 0.75;
    spec.intra_node.latency_us.value = 0;
    spec.nic.bandwidth_gb_per_s_per_direction.value = 40;
    spec.nic.efficiency.value = 0.5;
    spec.nic.latency_us.value = 0;
    spec.low_latency.one_node_gb_per_s.value = 100;
    spec.low_latency.two_nodes_gb_per_s.value = 20;
    spec.low_latency.more_nodes_gb_per_s.value = 10;
    return spec;
}

inline double seconds(program::CommKind kind, std::int64_t bytes, const std::vector<std::int64_t>& devices,
                      const topologies::ClusterSpec& spec) {
    return collective_cost(kind, bytes, place(topologies::Cluster(spec), devices), spec).seconds;
}

inline topologies::ClusterSpec cpu_cluster() {
    topologies::ClusterSpec spec;
    spec.name = "local";
    spec.devices_per_node = 2;
    spec.device.name = "cpu-core";
    spec.device.host_runs_compute = true;
    spec.intra_node.bandwidth_gb_per_s_per_direction.value = 5;
    spec.intra_node.efficiency.value = 1;
    spec.transport_samples = {
        {"all_reduce", 2, 1000, 1e-6},  {"all_reduce", 2, 10000, 4e-6}, {"all_reduce", 2, 20000, 9e-6},
        {"all_reduce", 4, 1000, 20e-6}, {"send", 2, 1000, 2e-6},
    };
    return spec;
}

inline CollectiveCost local_cost(program::CommKind kind, std::int64_t bytes, std::int64_t ranks,
                                 const topologies::ClusterSpec& spec) {
    const topologies::Cluster cluster(spec);
    std::vector<std::int64_t> devices;
    for (std::int64_t rank = 0; rank < ranks; ++rank) devices.push_back(cluster.device_of_rank(rank));
    return collective_cost(kind, bytes, place_group(cluster, devices), spec);
}

inline double local_seconds(program::CommKind kind, std::int64_t bytes, std::int64_t ranks,
                            const topologies::ClusterSpec& spec) {
    return local_cost(kind, bytes, ranks, spec).seconds;
}

}  // namespace orrery::sim::rounded
