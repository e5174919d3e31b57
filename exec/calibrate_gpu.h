// Measures this machine's GPU for the profile of a cluster with GPUs of this model.
#pragma once

#include <string>

#include "exec/transport/transport.h"
#include "topologies/cluster_spec.h"

namespace orrery::exec {

/// Throws InputError when this machine has no NVIDIA GPU that this build can use, or `base` is a cluster of CPUs;
/// JobError, with the driver's reason, if there are GPUs and CUDA cannot use them.
void check_gpu_calibration(const topologies::ClusterSpec& base);

/// One node of `base`, with the measurements of this machine's first GPU as its device. `when` goes into the figures'
/// sources. Precondition: check_gpu_calibration() accepts `base`. Throws JobError when CUDA fails.
[[nodiscard]] topologies::ClusterSpec measure_gpu_cluster(const topologies::ClusterSpec& base, Transport& transport,
                                                          const std::string& when);

}  // namespace orrery::exec
