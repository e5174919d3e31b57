#include <cuda_pipeline.h>
#include <ptx.h>

#include "kernels/cuda/launch.cuh"
#include "tests/gpu/ptx_kernels.h"

namespace orrery::exec {
namespace {

using kernels::cuda::kWarp;

__global__ void multiply_add_kernel(const std::uint32_t* a, const std::uint32_t* b, float* sums) {
    const unsigned lane = threadIdx.x;
    const ptx::Pair of_a[4] = {a[lane * 4], a[lane * 4 + 1], a[lane * 4 + 2], a[lane * 4 + 3]};
    float of_sums[4] = {sums[lane * 4], sums[lane * 4 + 1], sums[lane * 4 + 2], sums[lane * 4 + 3]};
    ptx::multiply_add(of_sums, of_a, b[lane * 2], b[lane * 2 + 1]);
    for (unsigned i = 0; i < 4; ++i) sums[lane * 4 + i] = of_sums[i];
}

__global__ void load_matrices_kernel(bool transposed, const std::uint32_t* matrices, std::uint32_t* to) {
    auto* const shared = static_cast<std::uint32_t*>(ptx::dynamic_shared());
    const unsigned lane = threadIdx.x;
    for (unsigned i = 0; i < 4; ++i) shared[lane * 4 + i] = matrices[lane * 4 + i];
    __syncthreads();
    ptx::Pair loaded[4];
    if (transposed) {
        ptx::load_transposed(loaded, shared + lane * 4);
    } else {
        ptx::load_matrices(loaded, shared + lane * 4);
    }
    for (unsigned i = 0; i < 4; ++i) to[lane * 4 + i] = loaded[i];
}

/// The first half of the copies is waited for before the second.
__global__ void copy_kernel(unsigned words, const std::uint32_t* from, std::uint32_t* to) {
    auto* const shared = static_cast<std::uint32_t*>(ptx::dynamic_shared());
    const unsigned half = words / 8 * 4;
    for (unsigned i = threadIdx.x * 4; i < half; i += kWarp * 4) __pipeline_memcpy_async(shared + i, from + i, 16);
    __pipeline_commit();
    for (unsigned i = half + threadIdx.x * 4; i < words; i += kWarp * 4) {
        __pipeline_memcpy_async(shared + i, from + i, 16);
    }
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    for (unsigned i = threadIdx.x; i < half; i += kWarp) to[i] = shared[i];
    __pipeline_wait_prior(0);
    __syncthreads();
    for (unsigned i = half + threadIdx.x; i < words; i += kWarp) to[i] = shared[i];
}

}  // namespace

void run_multiply_add(kernels::cuda::StreamHandle stream, const std::uint32_t* a, const std::uint32_t* b, float* sums) {
    kernels::cuda::launch(stream, 1, kWarp, "multiply_add", multiply_add_kernel, a, b, sums);
}
void run_load_matrices(kernels::cuda::StreamHandle stream, bool transposed, const std::uint32_t* matrices,
                       std::uint32_t* to) {
    constexpr std::size_t kBytes = 4 * 8 * 8 * 2;
    kernels::cuda::launch_with_shared(stream, 1, kWarp, kBytes, "load_matrices", load_matrices_kernel, transposed,
                                      matrices, to);
}
void run_copy(kernels::cuda::StreamHandle stream, std::int64_t bytes, const std::uint32_t* from, std::uint32_t* to) {
    kernels::cuda::launch_with_shared(stream, 1, kWarp, static_cast<std::size_t>(bytes), "copy", copy_kernel,
                                      static_cast<unsigned>(bytes / 4), from, to);
}

}  // namespace orrery::exec
