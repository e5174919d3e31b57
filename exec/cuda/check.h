// Converts CUDA error codes to JobError. Private to the CUDA backend.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "core/error.h"

namespace orrery::exec {

/// Throws JobError naming the call and CUDA's reason if `status` is an error.
inline void check_cuda(cudaError_t status, const char* call) {
    if (status != cudaSuccess) throw JobError(std::string(call) + ": " + cudaGetErrorString(status));
}

}  // namespace orrery::exec
