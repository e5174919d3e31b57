// Measures this machine's GPU for the profile of a cluster whose nodes hold such GPUs.
#pragma once

#include <string>

#include "exec/transport/transport.h"
#include "topologies/cluster_spec.h"

namespace orrery::exec {

/// Throws InputError when this machine has no NVIDIA GPU that this build can use, or `base` is a cluster of CPUs.
void check_gpu_calibration(const topologies::ClusterSpec& base);

/// One node of `base` with this machine's first GPU measured in the place of its device. `when` goes into the figures'
/// sources. Precondition: check_gpu_calibration() lets `base` through. Throws JobError when CUDA fails.
[[nodiscard]] topologies::ClusterSpec measure_gpu_cluster(const topologies::ClusterSpec& base, Transport& transport,
                                                          const std::string& when);

}  // namespace orrery::exec
