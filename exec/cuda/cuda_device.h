// An NVIDIA GPU as a Device: CUDA streams and events, operators through kernels/cuda, communication through NCCL.
#pragma once

#include <memory>

#include "exec/device/device.h"
#include "exec/transport/transport.h"

namespace orrery::exec {

/// The number of NVIDIA GPUs that this process can use; 0 without a GPU or a driver.
[[nodiscard]] int gpu_count();

/// The GPU with this index. The transport exchanges the NCCL ids and must outlive the device. Throws JobError if CUDA
/// or cuBLAS cannot start on the GPU.
[[nodiscard]] std::unique_ptr<Device> make_cuda_device(int index, Transport& transport);

}  // namespace orrery::exec
