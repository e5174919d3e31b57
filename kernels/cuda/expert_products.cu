// A GEMM per expert, whose numbers of rows only the device knows. A block computes a square tile of a result, for which
// it moves tiles of both factors through shared memory. Factors in bf16 are multiplied by tensor cores.
#include <mma.h>

#include <type_traits>

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

// By tensor cores.

constexpr int kDepthOfBf16 = 32;
constexpr int kStep = 16;     // side of the matrices that a warp multiplies
constexpr int kColumns = 32;  // of a warp's part of the tile, which has kStep rows
static_assert(kTile / kStep * (kTile / kColumns) == kThreads / kWarp);

/// By rows of consecutive `inner`, or of consecutive `outer`, as in memory. Padding spreads the rows over the banks.
template <bool kByInner>
struct TileOfBf16 {
    static constexpr int kLine = (kByInner ? kDepthOfBf16 : kTile) + 8;
    static constexpr int kLines = kByInner ? kTile : kDepthOfBf16;
    alignas(32) __nv_bfloat16 value[kLines * kLine];
    __device__ const __nv_bfloat16* at(int outer, int inner) const {
        return value + (kByInner ? outer * kLine + inner : inner * kLine + outer);
    }
};

struct TileOfResult {
    static constexpr int kLine = kTile + kOwn;
    alignas(32) float value[kTile * kLine];
};

/// Like read_tile().
template <bool kByInner>
__device__ void read_bf16(const Factor& factor, std::int64_t first_outer, std::int64_t outer_end,
                          std::int64_t first_inner, std::int64_t inner_end, TileOfBf16<kByInner>& tile) {
    constexpr int kFours = (kByInner ? kDepthOfBf16 : kTile) / 4;  // of a line
    const std::int64_t step = kByInner ? factor.outer_step : factor.inner_step;
    const std::int64_t first_line = kByInner ? first_outer : first_inner, first = kByInner ? first_inner : first_outer;
    const std::int64_t lines = kByInner ? outer_end : inner_end, end = kByInner ? inner_end : outer_end;
    const auto* data = static_cast<const __nv_bfloat16*>(factor.data.data);
    const bool in_fours = step % 4 == 0 && reinterpret_cast<std::uintptr_t>(data) % alignof(FourBf16) == 0;
    for (int i = static_cast<int>(threadIdx.x); i < TileOfBf16<kByInner>::kLines * kFours; i += kThreads) {
        const std::int64_t line = first_line + i / kFours, at = first + i % kFours * 4;
        FourBf16 four;
        if (line < lines && at + 4 <= end && in_fours) {
            four = *reinterpret_cast<const FourBf16*>(data + line * step + at);
        } else {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                four.value[j] = line < lines && at + j < end ? data[line * step + at + j] : __float2bfloat16_rn(0.0F);
            }
        }
        const int place = i / kFours * TileOfBf16<kByInner>::kLine + i % kFours * 4;
        *reinterpret_cast<FourBf16*>(tile.value + place) = four;
    }
}

/// Like multiply_tiles(), for factors in bf16; those by inner have an inner step of 1, the others an outer step of 1.
template <bool kLeftByInner, bool kRightByInner>
__device__ Sums multiply_bf16(const Factor& a, std::int64_t first_row, std::int64_t rows, const Factor& b,
                              std::int64_t first_column, std::int64_t columns, std::int64_t inner) {
    namespace wmma = nvcuda::wmma;
    using LeftLayout = std::conditional_t<kLeftByInner, wmma::row_major, wmma::col_major>;
    using RightLayout = std::conditional_t<kRightByInner, wmma::col_major, wmma::row_major>;
    constexpr int kLine = TileOfResult::kLine;
    __shared__ TileOfBf16<kLeftByInner> left;
    __shared__ TileOfBf16<kRightByInner> right;
    __shared__ TileOfResult result;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int row = warp / 2 * kStep, column = warp % 2 * kColumns;
    wmma::fragment<wmma::accumulator, kStep, kStep, kStep, float> sums[2];
    for (auto& sum : sums) wmma::fill_fragment(sum, 0.0F);
    for (std::int64_t first = 0; first < inner; first += kDepthOfBf16) {
        read_bf16(a, first_row, rows, first, inner, left);
        read_bf16(b, first_column, columns, first, inner, right);
        __syncthreads();
#pragma unroll
        for (int depth = 0; depth < kDepthOfBf16; depth += kStep) {
            wmma::fragment<wmma::matrix_a, kStep, kStep, kStep, __nv_bfloat16, LeftLayout> of_a;
            wmma::load_matrix_sync(of_a, left.at(row, depth), left.kLine);
#pragma unroll
            for (int part = 0; part < 2; ++part) {
                wmma::fragment<wmma::matrix_b, kStep, kStep, kStep, __nv_bfloat16, RightLayout> of_b;
                wmma::load_matrix_sync(of_b, right.at(column + part * kStep, depth), right.kLine);
                wmma::mma_sync(sums[part], of_a, of_b, sums[part]);
            }
        }
        __syncthreads();  // until all warps have read the tiles
    }
    for (int part = 0; part < 2; ++part) {
        wmma::store_matrix_sync(result.value + row * kLine + column + part * kStep, sums[part], kLine,
                                wmma::mem_row_major);
    }
    __syncthreads();
    const int own_row = static_cast<int>(threadIdx.x) / kSide * kOwn;
    const int own_column = static_cast<int>(threadIdx.x) % kSide * kOwn;
    Sums own;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
        const FourFp32 four = *reinterpret_cast<const FourFp32*>(result.value + (own_row + i) * kLine + own_column);
#pragma unroll
        for (int j = 0; j < kOwn; ++j) own.value[i][j] = four.value[j];
    }
    return own;
}

template <bool kInBf16, bool kLeftByInner, bool kRightByInner>
__device__ Sums multiply(const Factor& a, std::int64_t first_row, std::int64_t rows, const Factor& b,
                         std::int64_t first_column, std::int64_t columns, std::int64_t inner) {
    if constexpr (kInBf16) {
        return multiply_bf16<kLeftByInner, kRightByInner>(a, first_row, rows, b, first_column, columns, inner);
    } else {
        return multiply_tiles(a, first_row, rows, b, first_column, columns, inner);
    }
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
    for (std::int64_t source = 0; source < shape.sources; ++source) own += shape.counts[source * shape.groups + group];
    if (own == 0) return {group, 0, 0};
    for (std::int64_t i = threadIdx.x; i < shape.sources * shape.groups; i += kThreads) {
        if (i % shape.groups < group) lower += shape.counts[i];
    }
    return {group, block_sum(lower, shared), own};
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

/// y = x w, where w is the group's weight: its rows are the columns of y and their elements those of x, or, if it is
/// turned, the other way round. blockIdx.x is the tile's place among rows, blockIdx.y among columns.
template <bool kInBf16, bool kTurned>
__global__ void expert_rows_kernel(ReceivedLinearShape shape, ConstFloats x, ConstFloats weight, Floats y) {
    const RowsOfGroup own = rows_of_tile(shape, blockIdx.x);
    if (own.count == 0) return;
    const std::int64_t columns = kTurned ? shape.k : shape.n, inner = kTurned ? shape.n : shape.k;
    const ConstFloats of_group = weight.from(own.group * shape.n * shape.k);
    const Factor a{x.from(own.first * inner), inner, 1};
    const Factor b = kTurned ? Factor{of_group, 1, shape.k} : Factor{of_group, shape.k, 1};
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.y) * kTile;
    const Sums sums = multiply<kInBf16, true, !kTurned>(a, 0, own.count, b, column, columns, inner);
    write_tile(sums, false, 0, own.count, column, columns, y.from(own.first * columns));
}

/// dweight[g] += dy^T x over the rows of group blockIdx.z.
template <bool kInBf16>
__global__ void expert_weight_kernel(ReceivedLinearShape shape, ConstFloats dy, ConstFloats x, Floats dweight) {
    const RowsOfGroup own = rows_of_group(shape, blockIdx.z);
    if (own.count == 0) return;
    const Factor a{dy.from(own.first * shape.n), 1, shape.n};
    const Factor b{x.from(own.first * shape.k), 1, shape.k};
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * kTile;
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kTile;
    const Sums sums = multiply<kInBf16, false, false>(a, row, shape.n, b, column, shape.k, own.count);
    write_tile(sums, true, row, shape.n, column, shape.k, dweight.from(own.group * shape.n * shape.k));
}

/// Every group may have a tile that is not full.
unsigned most_tiles(const ReceivedLinearShape& shape) {
    return shape.most_rows == 0 ? 0 : blocks_for(shape.most_rows, kTile) + static_cast<unsigned>(shape.groups);
}

bool are_bf16(ConstFloats a, ConstFloats b) {
    return a.type == DType::bf16 && b.type == DType::bf16;
}

}  // namespace

void expert_linear_forward(StreamHandle stream, const ReceivedLinearShape& shape, ConstFloats x, ConstFloats weight,
                           Floats y) {
    launch(stream, dim3(most_tiles(shape), blocks_for(shape.n, kTile)), kThreads, "expert_linear_forward",
           are_bf16(x, weight) ? expert_rows_kernel<true, false> : expert_rows_kernel<false, false>, shape, x, weight,
           y);
}

void expert_linear_backward_input(StreamHandle stream, const ReceivedLinearShape& shape, ConstFloats dy,
                                  ConstFloats weight, Floats dx) {
    launch(stream, dim3(most_tiles(shape), blocks_for(shape.k, kTile)), kThreads, "expert_linear_backward_input",
           are_bf16(dy, weight) ? expert_rows_kernel<true, true> : expert_rows_kernel<false, true>, shape, dy, weight,
           dx);
}

void expert_linear_backward_weight(StreamHandle stream, const ReceivedLinearShape& shape, ConstFloats dy, ConstFloats x,
                                   Floats dweight) {
    launch(stream, dim3(blocks_for(shape.k, kTile), blocks_for(shape.n, kTile), static_cast<unsigned>(shape.groups)),
           kThreads, "expert_linear_backward_weight",
           are_bf16(dy, x) ? expert_weight_kernel<true> : expert_weight_kernel<false>, shape, dy, x, dweight);
}

}  // namespace orrery::kernels::cuda
