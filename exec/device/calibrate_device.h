// Measures one accelerator for a cluster's device profile: operators through the Device that trains, timed by its
// events; nothing of the network.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "exec/device/device.h"
#include "topologies/cluster_spec.h"

namespace orrery::exec {

struct DeviceMeasurements {
    double context_bytes = 0;          // in use before the first tensor: driver, libraries
    double memory_bytes_per_s = 0;     // of a copy within the device's memory; read and written bytes counted
    double host_copy_bytes_per_s = 0;  // the slower direction between device and pinned host memory
    double host_copy_latency_s = 0;    // of the smallest such copy
    double best_flops_per_s = 0;       // of the fastest matrix product
    double launch_s = 0;               // host time to issue one operator
    std::vector<topologies::MatmulSample> matmuls;
    std::vector<topologies::OperatorSample> operators;
};

/// Layers of one model as they are timed.
struct TimedModel {
    std::string name;  // of the zoo
    std::int64_t sequence = 0, micro_batch = 0;
};

/// Times the operators of dense decoders among `models` for which `runs` says yes. Uses up to `pool_bytes` of device
/// memory; operators that need more are left out. Throws JobError when the device has not so much.
[[nodiscard]] DeviceMeasurements measure_device(Device& device, const std::vector<TimedModel>& models,
                                                const std::function<bool(models::OpKind)>& runs,
                                                std::int64_t pool_bytes);

/// `base` as one node whose devices are as measured: fp32 only, since nothing else was. `name` and `when` go into the
/// figures' sources.
[[nodiscard]] topologies::ClusterSpec with_measured_device(topologies::ClusterSpec base, const std::string& name,
                                                           const DeviceMeasurements& measured, const std::string& when);

}  // namespace orrery::exec
