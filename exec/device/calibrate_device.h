// Measures one accelerator for a cluster's device profile. Operators run on the same Device as in training and are
// timed with its events. The network is not measured.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "exec/device/device.h"
#include "topologies/cluster_spec.h"

namespace orrery::exec {

struct DeviceMeasurements {
    double memory_bytes = 0;                   // of the device
    double context_bytes = 0;                  // in use before the first tensor: driver, libraries
    double memory_bytes_per_s = 0;             // of a copy within the device's memory; bytes read plus bytes written
    double host_copy_bytes_per_s = 0;          // between device and pinned host memory, in the slower direction
    double host_copy_latency_s = 0;            // of a copy of one byte
    std::map<DType, double> best_flops_per_s;  // of the fastest GEMM of each type
    double launch_s = 0;                       // host time to issue one operator
    std::vector<topologies::MatmulSample> matmuls;
    std::vector<topologies::OperatorSample> operators;
};

/// A model whose layers are timed, and the shape of its micro-batch.
struct TimedModel {
    std::string name;  // of a built-in model
    std::int64_t sequence = 0, micro_batch = 0;
};

/// The models and shapes that a calibration times, from a few small operators to layers of 8 billion parameters.
[[nodiscard]] std::vector<TimedModel> timed_models();

/// Times the operators of `models`, in fp32 and in bf16, for which `runs` returns true. Allocates `pool_bytes` of
/// device memory; operators that need more are skipped. Throws JobError if the device has less.
[[nodiscard]] DeviceMeasurements measure_device(Device& device, const std::vector<TimedModel>& models,
                                                const std::function<bool(models::OpKind)>& runs,
                                                std::int64_t pool_bytes);

/// `base` as a single node with the measured device, which has peaks of the types that were measured. `name` and `when`
/// go into the figures' sources.
[[nodiscard]] topologies::ClusterSpec with_measured_device(topologies::ClusterSpec base, const std::string& name,
                                                           const DeviceMeasurements& measured, const std::string& when);

}  // namespace orrery::exec
