// The stream on which kernels are queued, for code that does not include CUDA's headers.
#pragma once

namespace orrery::kernels::cuda {

/// A cudaStream_t.
struct StreamHandle {
    void* stream = nullptr;
};

}  // namespace orrery::kernels::cuda
