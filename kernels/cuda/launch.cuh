// Private to the CUDA kernels: launch helpers, and sums over a warp and a block.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "core/error.h"
#include "kernels/cuda/kernels.h"

namespace orrery::kernels::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kThreads = 256;
inline constexpr unsigned kAllLanes = 0xffffffffU;

inline cudaStream_t stream_of(StreamHandle handle) {
    return static_cast<cudaStream_t>(handle.stream);
}

/// The number of blocks for `count` items.
inline unsigned blocks_for(std::int64_t count, std::int64_t per_block = kThreads) {
    return static_cast<unsigned>((count + per_block - 1) / per_block);
}

inline void check_launch(const char* kernel) {
    const cudaError_t status = cudaGetLastError();
    if (status != cudaSuccess) throw JobError(std::string("CUDA kernel ") + kernel + ": " + cudaGetErrorString(status));
}

template <typename T>
__device__ T warp_sum(T value) {
    for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) value += __shfl_xor_sync(kAllLanes, value, lanes);
    return value;
}

__device__ inline float warp_max(float value) {
    for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, lanes));
    return value;
}

/// The sum over a block of whole warps; every thread gets it. `shared` has an element per warp.
template <typename T>
__device__ T block_sum(T value, T* shared) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    value = warp_sum(value);
    __syncthreads();  // until all threads have read the values of an earlier sum
    if (lane == 0) shared[warp] = value;
    __syncthreads();
    T total = 0;
    for (unsigned w = 0; w < blockDim.x / kWarp; ++w) total += shared[w];
    return total;
}

}  // namespace orrery::kernels::cuda
