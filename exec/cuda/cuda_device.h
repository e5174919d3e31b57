// An NVIDIA GPU as a Device: CUDA streams and events, operators through kernels/cuda, communication through NCCL.
#pragma once

#include <memory>

#include "exec/device/device.h"
#include "exec/transport/transport.h"

namespace orrery::exec {

/// NVIDIA GPUs that this process may use; 0 where there is none, or no driver.
[[nodiscard]] int gpu_count();

/// The GPU of this index. The transport, which outlives the device, carries what communicators need to find each other.
/// Throws JobError when CUDA or cuBLAS cannot start there.
[[nodiscard]] std::unique_ptr<Device> make_cuda_device(int index, Transport& transport);

}  // namespace orrery::exec
