// Inside of the CUDA backend: what its calls return, as errors of ours.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "core/error.h"

namespace orrery::exec {

/// Throws JobError naming the call and CUDA's reason unless all is well.
inline void check_cuda(cudaError_t status, const char* call) {
    if (status != cudaSuccess) throw JobError(std::string(call) + ": " + cudaGetErrorString(status));
}

}  // namespace orrery::exec
