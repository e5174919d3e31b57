// A machine of two cores, for tests that plan for `local` without calibration.
#pragma once

#include <cstdint>
#include <string>

#include "topologies/cluster_spec.h"

namespace orrery::test {

inline topologies::ClusterSpec made_up_local_cluster() {
    const auto figure = [](double value) {
        return topologies::Figure{value, topologies::Provenance::fallback, "made up for tests"};
    };
    topologies::ClusterSpec cluster;
    cluster.name = "local";
    cluster.source = "made up for tests";
    cluster.device.name = "cpu-core";
    cluster.device.peaks = {{DType::fp32, figure(0.05)}};
    cluster.device.memory_bandwidth_gb_per_s = figure(8.0);
    cluster.device.memory_capacity_gib = figure(8.0);
    cluster.device.context_gib = figure(0.03);
    cluster.device.matmul_efficiency = figure(0.8);
    cluster.device.memory_efficiency = figure(0.8);
    cluster.device.launch_us = figure(1.0);
    cluster.device.host_runs_compute = true;
    cluster.device.cores_per_node = 2;
    cluster.devices_per_node = 2;
    cluster.intra_node = {"shared-memory", topologies::LinkMedium::shared_memory, figure(4.0), figure(2.0),
                          figure(0.8)};
    cluster.host_memory_link = {"memory", topologies::LinkMedium::shared_memory, figure(4.0), figure(0.0), figure(1.0)};
    for (const char* op : {"all_reduce", "all_gather", "reduce_scatter", "send"}) {
        for (const std::int64_t ranks : {2, 4, 8}) {
            if (op == std::string("send") && ranks > 2) continue;
            for (const std::int64_t bytes : {1 << 10, 1 << 16, 1 << 22}) {
                cluster.transport_samples.push_back({op, ranks, bytes, 5e-6 + static_cast<double>(bytes) / 2e9});
            }
        }
    }
    return cluster;
}

}  // namespace orrery::test
