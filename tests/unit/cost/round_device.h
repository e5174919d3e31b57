// A device and a cluster with round figures.
#pragma once

#include "models/operator.h"
#include "topologies/cluster_spec.h"

namespace orrery::sim::rounded {

inline topologies::Figure figure(double value, topologies::Provenance kind = topologies::Provenance::datasheet) {
    return {value, kind, "round number"};
}

/// A device with 100 TFLOP/s, 1000 GB/s, and 10 units with tiles of 100 x 100.
inline topologies::DeviceProfile device() {
    topologies::DeviceProfile profile;
    profile.name = "test-gpu";
    profile.peaks = {{DType::bf16, figure(100)}};
    profile.memory_bandwidth_gb_per_s = figure(1000);
    profile.matmul_efficiency = figure(0.8);
    profile.memory_efficiency = figure(0.5);
    profile.compute_units = 10;
    profile.tile_m = 100;
    profile.tile_n = 100;
    return profile;
}

/// One node with 4 of these devices, each with a host link of 50 GB/s at 0.8; host memory bandwidth 100 GB/s.
inline topologies::ClusterSpec cluster(const topologies::DeviceProfile& profile = device()) {
    topologies::ClusterSpec spec;
    spec.name = "test-cluster";
    spec.devices_per_node = 4;
    spec.device = profile;
    spec.host_link = {.name = "test-link",
                      .bandwidth_gb_per_s_per_direction = figure(50),
                      .latency_us = figure(10),
                      .efficiency = figure(0.8)};
    spec.host_memory_bandwidth_gb_per_s = figure(100);
    return spec;
}

inline models::Operator matmul(std::int64_t rows, std::int64_t n, std::int64_t k,
                               models::OpKind kind = models::OpKind::linear_forward) {
    models::Operator op;
    op.kind = kind;
    op.math = DType::bf16;
    op.rows = rows;
    op.n = n;
    op.k = k;
    op.flops = 2.0 * static_cast<double>(rows) * static_cast<double>(n) * static_cast<double>(k);
    return op;
}

}  // namespace orrery::sim::rounded
