// Private to the CUDA kernels: sums over the rows of a matrix, column by column, in an order that depends on its sizes
// only.
#pragma once

#include <bit>

#include "kernels/cuda/launch.cuh"

namespace orrery::kernels::cuda {

/// A block has kColumns columns: threadIdx.x is the column, and threadIdx.y selects every blockDim.y-th row.
template <int kColumns>
struct ColumnBlock {
    static constexpr int kMostRows = 1024 / kColumns;
    double of_thread[kColumns][kMostRows + 1];

    /// Few threads for few rows, but a warp for each column at least, which adds up its threads.
    [[nodiscard]] static dim3 threads_for(std::int64_t rows) {
        const std::int64_t wanted = rows < kWarp ? kWarp : rows > kMostRows ? kMostRows : rows;
        return {kColumns, static_cast<unsigned>(std::bit_ceil(static_cast<std::uint64_t>(wanted)))};
    }
    /// The sum over the threads of column() is returned to lane 0 of its warp, if has_column().
    __device__ double total(double own) {
        of_thread[threadIdx.x][threadIdx.y] = own;
        __syncthreads();
        double sum = 0;
        if (has_column()) {
            for (unsigned row = static_cast<unsigned>(lane()); row < blockDim.y; row += kWarp) {
                sum += of_thread[warp()][row];
            }
        }
        return warp_sum(sum);
    }
    __device__ static int linear() { return static_cast<int>(threadIdx.y * kColumns + threadIdx.x); }
    __device__ static int lane() { return linear() % kWarp; }
    __device__ static int warp() { return linear() / kWarp; }
    __device__ static bool has_column() { return warp() < kColumns; }
    __device__ static std::int64_t column() { return static_cast<std::int64_t>(blockIdx.x) * kColumns + warp(); }
};

/// Calls use(columns of a block as a constant): few where all columns would be too few blocks for a device. What a
/// block reads of a row of fp32 fills an access to memory nevertheless.
template <typename Use>
void with_columns(std::int64_t columns, const Use& use) {
    constexpr std::int64_t kManyColumns = 8192;
    if (columns >= kManyColumns) return use(std::integral_constant<int, 32>());
    use(std::integral_constant<int, 8>());
}

}  // namespace orrery::kernels::cuda
