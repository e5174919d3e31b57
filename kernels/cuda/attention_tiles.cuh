// Private to the CUDA kernels: tiles of bf16 rows in shared memory, and their products by tensor cores as attention
// needs them. A block of four warps has a tile of its own rows, 16 for each warp, and goes through tiles of the others.
#pragma once

#include <cuda_pipeline.h>
#include <ptx.h>

#include <cstdint>
#include <cstring>

#include "kernels/cuda/attention_problem.cuh"
#include "kernels/cuda/launch.cuh"

namespace orrery::kernels::cuda {

inline constexpr int kOwnRows = 64;
inline constexpr int kOtherRows = 32;
inline constexpr int kStepOfProduct = 16;  // rows of a warp, and terms of the sums of one instruction
inline constexpr int kTileThreads = kOwnRows / kStepOfProduct * kWarp;

/// A lane's part of a result of 16 rows: `columns / 8` times the two rows group and group + 8, with two columns each.
/// See ptx::multiply_add().
template <int kColumns>
struct Sums {
    static constexpr int kCount = kColumns / 8;
    float value[kCount][4] = {};
    __device__ float (&operator[](int n))[4] { return value[n]; }
    __device__ const float (&operator[](int n) const)[4] { return value[n]; }
};

struct LaneOfSums {
    int group, place;
    __device__ LaneOfSums()
        : group(static_cast<int>(threadIdx.x) % kWarp / 4), place(static_cast<int>(threadIdx.x) % 4 * 2) {}
    /// Of element e of a sum.
    __device__ int row(int e) const { return group + e / 2 * 8; }
    __device__ int column(int n, int e) const { return n * 8 + place + e % 2; }
};

struct alignas(16) Chunk {
    static constexpr int kElements = 8;
    __nv_bfloat16 value[kElements];
};

/// Rows of up to kWidth elements. The chunks of a row change places by the row, so that chunks in the same column are
/// in different banks.
template <int kWidth, int kRows>
struct Tile {
    static constexpr int kChunks = kWidth / Chunk::kElements;
    static_assert(kChunks >= 8);
    Chunk chunk[kRows * kChunks];
    __device__ Chunk* at(int row, int column) { return chunk + row * kChunks + (column ^ (row & 7)); }
};

/// The columns of a head in the rows of one sample.
struct HeadRows {
    const __nv_bfloat16* data;  // of the first row
    std::int64_t step;          // from row to row
    int count;                  // of rows
    int columns;
    bool in_chunks;  // a row is a whole number of chunks, and aligned
};

/// Starts to copy the rows [first, first + kRows), with zeros after the last row, and after the last column to a
/// multiple of kStepOfProduct. Called by the whole block, see go_through().
template <int kWidth, int kRows>
__device__ void fetch(Tile<kWidth, kRows>& tile, const HeadRows& from, int first) {
    constexpr int kChunks = Tile<kWidth, kRows>::kChunks;
    constexpr int kChunksOfStep = kStepOfProduct / Chunk::kElements;
    const int chunks = (from.columns + kStepOfProduct - 1) / kStepOfProduct * kChunksOfStep;
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += kTileThreads) {
        const int row = i / kChunks, column = i % kChunks;
        if (column >= chunks) continue;
        const int elements = first + row < from.count ? from.columns - column * Chunk::kElements : 0;  // that exist
        Chunk* const to = tile.at(row, column);
        const __nv_bfloat16* const data = from.data + (first + row) * from.step + column * Chunk::kElements;
        if (elements > 0 && from.in_chunks) {
            __pipeline_memcpy_async(to, data, sizeof(Chunk));
            continue;
        }
        Chunk chunk;
#pragma unroll
        for (int j = 0; j < Chunk::kElements; ++j) {
            chunk.value[j] = j < elements ? data[j] : __float2bfloat16_rn(0.0F);
        }
        *to = chunk;
    }
}

/// Goes through the tiles from next(0) on: calls fetch(tile, stage) to start its copies, stage being 0 and 1 by turns,
/// and use(tile, stage) when they have landed, as those of the next tile are under way. next(tile) is the first to use
/// from `tile` on, and `tiles` after the last. The block's own tile has been fetched before.
template <typename Next, typename Fetch, typename Use>
__device__ void go_through(int tiles, const Next& next, const Fetch& fetch, const Use& use) {
    int stage = 0;
    int tile = next(0);
    if (tile < tiles) fetch(tile, stage);
    __pipeline_commit();
    while (tile < tiles) {
        const int following = next(tile + 1);
        __pipeline_wait_prior(0);
        __syncthreads();  // all threads' copies have landed, and no warp uses the tile before
        if (following < tiles) fetch(following, stage ^ 1);
        __pipeline_commit();
        use(tile, stage);
        tile = following;
        stage ^= 1;
    }
    __pipeline_wait_prior(0);
}

/// sums = own rows [first, first + 16) . other rows, over `columns`, which is all of both.
template <int kWidth>
__device__ void multiply(Tile<kWidth, kOwnRows>& own, int first, Tile<kWidth, kOtherRows>& other, int columns,
                         Sums<kOtherRows>& sums) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    sums = {};
#pragma unroll 2  // more would take more registers
    for (int step = 0; step < kWidth / kStepOfProduct; ++step) {
        if (step * kStepOfProduct >= columns) break;
        ptx::Pair a[4];
        ptx::load_matrices(a, own.at(first + lane % 16, step * 2 + lane / 16));
#pragma unroll
        for (int n = 0; n < Sums<kOtherRows>::kCount; n += 2) {
            ptx::Pair b[4];  // of 16 rows
            ptx::load_matrices(b, other.at(n * 8 + lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2));
            ptx::multiply_add(sums[n], a, b[0], b[1]);
            ptx::multiply_add(sums[n + 1], a, b[2], b[3]);
        }
    }
}

__device__ inline ptx::Pair pair_of(float first, float second) {
    const __nv_bfloat162 rounded = __floats2bfloat162_rn(first, second);
    ptx::Pair pair = 0;
    memcpy(&pair, &rounded, sizeof pair);
    return pair;
}

/// sums += factors . columns [first, first + kColumns) of the other rows, as far as there are columns. The factors are
/// rounded to bf16.
template <int kWidth, int kColumns>
__device__ void multiply_add(const Sums<kOtherRows>& factors, Tile<kWidth, kOtherRows>& other, int first, int columns,
                             Sums<kColumns>& sums) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int step = 0; step < kOtherRows / kStepOfProduct; ++step) {
        const auto &left = factors[2 * step], &right = factors[2 * step + 1];
        const ptx::Pair a[4] = {pair_of(left[0], left[1]), pair_of(left[2], left[3]), pair_of(right[0], right[1]),
                                pair_of(right[2], right[3])};
#pragma unroll
        for (int n = 0; n < Sums<kColumns>::kCount; n += 2) {
            if (first + n * 8 >= columns) break;
            ptx::Pair b[4];  // of 16 columns
            ptx::load_transposed(b, other.at(step * kStepOfProduct + lane % 16, first / 8 + n + lane / 16));
            ptx::multiply_add(sums[n], a, b[0], b[1]);
            ptx::multiply_add(sums[n + 1], a, b[2], b[3]);
        }
    }
}

/// Writes a warp's 16 rows of sums, times a factor for each of a lane's two rows, to the columns [first, first +
/// kColumns) of a head. `rows`: how many of the 16 exist. `to`: of the first of them.
template <int kColumns>
__device__ void store(const Sums<kColumns>& sums, const float (&factors)[2], __nv_bfloat16* to, std::int64_t step,
                      std::int64_t rows, int first, int columns) {
    const LaneOfSums lane;
    const bool in_pairs = step % 2 == 0 && reinterpret_cast<std::uintptr_t>(to) % sizeof(__nv_bfloat162) == 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = lane.row(2 * half);
        if (row >= rows) continue;
#pragma unroll
        for (int n = 0; n < Sums<kColumns>::kCount; ++n) {
            const int column = first + lane.column(n, 0);
            __nv_bfloat16* const at = to + row * step + column;
            const float left = sums[n][2 * half] * factors[half], right = sums[n][2 * half + 1] * factors[half];
            if (column + 1 < columns && in_pairs) {
                *reinterpret_cast<__nv_bfloat162*>(at) = __floats2bfloat162_rn(left, right);
            } else {
                if (column < columns) at[0] = __float2bfloat16_rn(left);
                if (column + 1 < columns) at[1] = __float2bfloat16_rn(right);
            }
        }
    }
}

/// The positions of the rows of a tile. In 32 bits: registers are scarce.
struct TilePositions {
    const PositionRuns* runs;
    int first;                 // index of the first row
    int count;                 // of rows that exist
    int position, run_length;  // of the first row, and how far the positions after it are consecutive
    int lowest, highest;

    __device__ TilePositions(const PositionRuns& all, int first_index, int most) : runs(&all), first(first_index) {
        const int left = static_cast<int>(all.positions()) - first;
        count = left < most ? left : most;
        const PositionRun run = all.rest_of_run(first);
        position = lowest = static_cast<int>(run.first);
        run_length = run.count < count ? static_cast<int>(run.count) : count;
        highest = lowest + run_length - 1;
        for (int done = run_length; done < count;) {
            const PositionRun next = all.rest_of_run(first + done);
            const int length = next.count < count - done ? static_cast<int>(next.count) : count - done;
            const int begin = static_cast<int>(next.first);
            lowest = begin < lowest ? begin : lowest;
            highest = begin + length - 1 > highest ? begin + length - 1 : highest;
            done += length;
        }
    }
    /// Of a row that exists.
    __device__ int operator[](int row) const {
        return row < run_length ? position + row : static_cast<int>(runs->position(first + row));
    }
};

/// Which queries of a tile attend to which keys of a tile.
enum class Attends { none, some, all };

__device__ inline Attends attends(const AttentionProblem& problem, const TilePositions& queries,
                                  const TilePositions& keys) {
    if (problem.causal && keys.lowest > queries.highest) return Attends::none;
    const int window = static_cast<int>(problem.window);
    if (window > 0 && keys.highest <= queries.lowest - window) return Attends::none;
    const bool all =
        (!problem.causal || keys.highest <= queries.lowest) && (window == 0 || keys.lowest > queries.highest - window);
    return all ? Attends::all : Attends::some;
}
__device__ inline bool attends(const AttentionProblem& problem, int query, int key) {
    const int window = static_cast<int>(problem.window);
    return (!problem.causal || key <= query) && (window == 0 || key > query - window);
}

}  // namespace orrery::kernels::cuda
