// Private to the CUDA kernels: launch helpers, and sums over a warp and a block.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "core/error.h"
#include "kernels/cuda/floats.h"
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

/// launch() with dynamic shared memory for each block.
template <typename... Parameters>
void launch_with_shared(StreamHandle stream, dim3 grid, dim3 block, std::size_t shared_bytes, const char* name,
                        void (*kernel)(Parameters...), std::type_identity_t<Parameters>... arguments) {
    constexpr std::size_t kUnasked = std::size_t{48} << 10U;  // what kernels may use otherwise
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream_of(stream);
    cudaError_t status = cudaSuccess;
    if (shared_bytes > kUnasked) {
        status = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    }
    if (status == cudaSuccess) status = cudaLaunchKernelEx(&config, kernel, arguments...);
    if (status != cudaSuccess) throw JobError(std::string("CUDA kernel ") + name + ": " + cudaGetErrorString(status));
}

/// Queues a kernel; does nothing if the grid has no blocks. The arguments are converted to the kernel's parameters,
/// which are copied before the call returns. Throws JobError naming the kernel if it cannot be queued. By a function of
/// the runtime rather than by <<<>>>, so that the kernels are plain C++ to a runtime that calls them on CPUs.
template <typename... Parameters>
void launch(StreamHandle stream, dim3 grid, dim3 block, const char* name, void (*kernel)(Parameters...),
            std::type_identity_t<Parameters>... arguments) {
    launch_with_shared(stream, grid, block, 0, name, kernel, arguments...);
}

__device__ inline double wide(float x) {
    return static_cast<double>(x);
}

__device__ inline float get(ConstFloats x, std::int64_t i) {
    if (x.type == DType::bf16) return __bfloat162float(static_cast<const __nv_bfloat16*>(x.data)[i]);
    return static_cast<const float*>(x.data)[i];
}
/// x[i] = value, rounded to the nearest.
__device__ inline void put(Floats x, std::int64_t i, float value) {
    if (x.type == DType::bf16) {
        static_cast<__nv_bfloat16*>(x.data)[i] = __float2bfloat16_rn(value);
    } else {
        static_cast<float*>(x.data)[i] = value;
    }
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
