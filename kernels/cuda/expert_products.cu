// A GEMM per expert, whose numbers of rows only the device knows. A block computes a square tile of a result, for which
// it moves tiles of both factors through shared memory.
#include <algorithm>

#include "kernels/cuda/experts.h"
#include "kernels/cuda/loops.cuh"

namespace orrery::kernels::cuda {
namespace {

constexpr int kTile = 64;   // side of a block's tile of the result
constexpr int kDepth = 16;  // terms of the sums that are in shared memory at a time
constexpr int kOwn = 4;     // side of a thread's tile of the result
constexpr int kSide = kTile / kOwn;
static_assert(kSide * kSide == kThreads && kOwn == sizeof(Four) / sizeof(float));

/// Element (outer, inner) of a factor is data[outer * outer_step + inner * inner_step]; the product sums over `inner`.
/// One of the steps is 1.
struct Factor {
    ConstFloats data;
    std::int64_t outer_step, inner_step;
};

/// Rows of padding keep the columns aligned and spread them over the banks of shared memory.
struct TileOfFactor {
    alignas(16) float value[kDepth][kTile + kOwn];
};

/// Reads the elements (first_outer …, first_inner …), with zeros beyond the ends, by threads in the order of memory.
__device__ void read_tile(const Factor& factor, std::int64_t first_outer, std::int64_t outer_end,
                          std::int64_t first_inner, std::int64_t inner_end, TileOfFactor& tile) {
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kDepth; i += kThreads) {
        const int outer = factor.inner_step == 1 ? i / kDepth : i % kTile;
        const int inner = factor.inner_step == 1 ? i % kDepth : i / kTile;
        const bool exists = first_outer + outer < outer_end && first_inner + inner < inner_end;
        tile.value[inner][outer] = exists ? get(factor.data, (first_outer + outer) * factor.outer_step +
                                                                 (first_inner + inner) * factor.inner_step)
                                          : 0.0F;
    }
}

/// A thread's part of the tile of the result.
struct Sums {
    float value[kOwn][kOwn];
};

__device__ Sums multiply_tiles(const Factor& a, std::int64_t first_row, std::int64_t rows, const Factor& b,
                               std::int64_t first_column, std::int64_t columns, std::int64_t inner) {
    __shared__ TileOfFactor left, right;
    const int row = static_cast<int>(threadIdx.x) / kSide * kOwn, column = static_cast<int>(threadIdx.x) % kSide * kOwn;
    Sums sums{};
    for (std::int64_t first = 0; first < inner; first += kDepth) {
        read_tile(a, first_row, rows, first, inner, left);
        read_tile(b, first_column, columns, first, inner, right);
        __syncthreads();
#pragma unroll
        for (int depth = 0; depth < kDepth; ++depth) {
            const FourFp32 of_a = *reinterpret_cast<const FourFp32*>(&left.value[depth][row]);
            const FourFp32 of_b = *reinterpret_cast<const FourFp32*>(&right.value[depth][column]);
#pragma unroll
            for (int i = 0; i < kOwn; ++i) {
#pragma unroll
                for (int j = 0; j < kOwn; ++j) sums.value[i][j] += of_a.value[i] * of_b.value[j];
            }
        }
        __syncthreads();  // until all threads have read the tiles
    }
    return sums;
}

/// c[rows, columns] = sums, or += sums.
__device__ void write_tile(const Sums& sums, bool adds, std::int64_t first_row, std::int64_t rows,
                           std::int64_t first_column, std::int64_t columns, Floats c) {
    const std::int64_t row = first_row + threadIdx.x / kSide * kOwn;
    const std::int64_t column = first_column + threadIdx.x % kSide * kOwn;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
#pragma unroll
        for (int j = 0; j < kOwn; ++j) {
            if (row + i >= rows || column + j >= columns) continue;
            const std::int64_t at = (row + i) * columns + column + j;
            put(c, at, adds ? get(c, at) + sums.value[i][j] : sums.value[i][j]);
        }
    }
}

struct RowsOfGroup {
    std::int64_t group, first, count;
};

/// The group's rows follow those of lower groups.
__device__ RowsOfGroup rows_of_group(const ReceivedLinearShape& shape, std::int64_t group) {
    __shared__ std::int64_t shared[kThreads / kWarp];
    std::int64_t lower = 0, own = 0;
    for (std::int64_t i = threadIdx.x; i < shape.sources * shape.groups; i += kThreads) {
        const std::int64_t of = i % shape.groups;
        if (of < group) lower += shape.counts[i];
        if (of == group) own += shape.counts[i];
    }
    lower = block_sum(lower, shared);
    return {group, lower, block_sum(own, shared)};
}

/// The rows of the block's tile, if every group's tiles follow those of lower groups; none if there are fewer tiles.
__device__ RowsOfGroup rows_of_tile(const ReceivedLinearShape& shape, std::int64_t tile) {
    __shared__ std::int64_t of_group[kThreads];
    std::int64_t first = 0;
    for (std::int64_t begin = 0; begin < shape.groups; begin += kThreads) {
        const std::int64_t mine = begin + threadIdx.x;
        std::int64_t own = 0;
        for (std::int64_t source = 0; mine < shape.groups && source < shape.sources; ++source) {
            own += shape.counts[source * shape.groups + mine];
        }
        __syncthreads();  // until all threads have read the last groups
        of_group[threadIdx.x] = own;
        __syncthreads();
        for (int g = 0; g < kThreads && begin + g < shape.groups; ++g) {
            const std::int64_t rows = of_group[g];
            if (tile * kTile < rows) {
                const std::int64_t left = rows - tile * kTile;
                return {begin + g, first + tile * kTile, left < kTile ? left : kTile};
            }
            tile -= (rows + kTile - 1) / kTile;
            first += rows;
        }
    }
    return {0, 0, 0};
}

/// y = x w, where w is the group's weight: its rows are the columns of y and their elements those of x, or, with
/// `turned`, the other way round. blockIdx.x is the tile's place among rows, blockIdx.y among columns.
__global__ void expert_rows_kernel(ReceivedLinearShape shape, bool turned, ConstFloats x, ConstFloats weight,
                                   Floats y) {
    const RowsOfGroup own = rows_of_tile(shape, blockIdx.x);
    if (own.count == 0) return;
    const std::int64_t columns = turned ? shape.k : shape.n, inner = turned ? shape.n : shape.k;
    const ConstFloats of_group = weight.from(own.group * shape.n * shape.k);
    const Factor a{x.from(own.first * inner), inner, 1};
    const Factor b = turned ? Factor{of_group, 1, shape.k} : Factor{of_group, shape.k, 1};
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.y) * kTile;
    const Sums sums = multiply_tiles(a, 0, own.count, b, column, columns, inner);
    write_tile(sums, false, 0, own.count, column, columns, y.from(own.first * columns));
}

/// dweight[g] += dy^T x over the rows of group blockIdx.z.
__global__ void expert_weight_kernel(ReceivedLinearShape shape, ConstFloats dy, ConstFloats x, Floats dweight) {
    const RowsOfGroup own = rows_of_group(shape, blockIdx.z);
    if (own.count == 0) return;
    const Factor a{dy.from(own.first * shape.n), 1, shape.n};
    const Factor b{x.from(own.first * shape.k), 1, shape.k};
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * kTile;
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kTile;
    const Sums sums = multiply_tiles(a, row, shape.n, b, column, shape.k, own.count);
    write_tile(sums, true, row, shape.n, column, shape.k, dweight.from(own.group * shape.n * shape.k));
}

/// Every group may have a tile that is not full.
unsigned most_tiles(const ReceivedLinearShape& shape) {
    return shape.most_rows == 0 ? 0 : blocks_for(shape.most_rows, kTile) + static_cast<unsigned>(shape.groups);
}

}  // namespace

void expert_linear_forward(StreamHandle stream, const ReceivedLinearShape& shape, ConstFloats x, ConstFloats weight,
                           Floats y) {
    launch(stream, dim3(most_tiles(shape), blocks_for(shape.n, kTile)), kThreads, "expert_linear_forward",
           expert_rows_kernel, shape, false, x, weight, y);
}

void expert_linear_backward_input(StreamHandle stream, const ReceivedLinearShape& shape, ConstFloats dy,
                                  ConstFloats weight, Floats dx) {
    launch(stream, dim3(most_tiles(shape), blocks_for(shape.k, kTile)), kThreads, "expert_linear_backward_input",
           expert_rows_kernel, shape, true, dy, weight, dx);
}

void expert_linear_backward_weight(StreamHandle stream, const ReceivedLinearShape& shape, ConstFloats dy, ConstFloats x,
                                   Floats dweight) {
    launch(stream, dim3(blocks_for(shape.k, kTile), blocks_for(shape.n, kTile), static_cast<unsigned>(shape.groups)),
           kThreads, "expert_linear_backward_weight", expert_weight_kernel, shape, dy, x, dweight);
}

}  // namespace orrery::kernels::cuda
