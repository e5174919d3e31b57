// Private to the CUDA kernels: kernels with one thread per element of a vector or matrix.
#pragma once

#include "kernels/cuda/launch.cuh"

namespace orrery::kernels::cuda {

template <typename Body>
__global__ void each_kernel(std::int64_t count, Body body) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) body(i);
}

/// Calls body(i) for each i in [0, count), with one thread each.
template <typename Body>
void for_each(StreamHandle stream, std::int64_t count, const char* name, Body body) {
    launch(stream, blocks_for(count), kThreads, name, each_kernel<Body>, count, body);
}

/// Neighbouring threads have neighbouring columns, and no thread divides to find its element.
template <typename Body>
__global__ void each_of_rows_kernel(std::int64_t rows, std::int64_t columns, Body body) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
    if (row < rows && column < columns) body(row, column);
}

/// Calls body(row, column) for each element of a matrix, with one thread each.
template <typename Body>
void for_each_of_rows(StreamHandle stream, std::int64_t rows, std::int64_t columns, const char* name, Body body) {
    unsigned across = kWarp;  // columns of a block
    while (across < kThreads && across < columns) across *= 2;
    const dim3 block(across, kThreads / across);
    launch(stream, dim3(blocks_for(rows, block.y), blocks_for(columns, block.x)), block, name,
           each_of_rows_kernel<Body>, rows, columns, body);
}

/// The index of a row's position: its token is of sample row % micro_batch. In 32 bits, since 64-bit divisions are
/// slow.
__device__ inline unsigned position_index(std::int64_t row, std::int64_t micro_batch) {
    return static_cast<unsigned>(row) / static_cast<unsigned>(micro_batch);
}

}  // namespace orrery::kernels::cuda
