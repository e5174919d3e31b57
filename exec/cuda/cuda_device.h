// An NVIDIA GPU as a Device: CUDA streams and events, operators through kernels/cuda, communication through NCCL.
#pragma once

#include <memory>
#include <string>

#include "exec/device/device.h"
#include "exec/transport/transport.h"

namespace orrery::exec {

/// The NVIDIA GPUs that this process can use.
struct GpuSearch {
    int count = 0;
    std::string failure;  // if CUDA cannot use what there is, its reason: for instance a driver that is too old
};
/// None, and no failure, without a GPU or without a driver.
[[nodiscard]] GpuSearch find_gpus();
/// The address on the PCI bus of the GPU with this index, which no other GPU of this machine has. Throws JobError if
/// CUDA fails.
[[nodiscard]] std::string gpu_address(int index);

/// The GPU with this index. The transport exchanges the NCCL ids and must outlive the device. Throws JobError if CUDA
/// or cuBLAS cannot start on the GPU.
[[nodiscard]] std::unique_ptr<Device> make_cuda_device(int index, Transport& transport);

}  // namespace orrery::exec
