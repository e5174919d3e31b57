// A radix sort from the lowest digit to the highest. Each pass counts the rows with each digit in tiles of rows, adds
// up these counts, and moves the rows. There are no atomic additions: every position follows from the keys alone.
#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "kernels/cuda/each.cuh"
#include "kernels/cuda/sort_rows.h"

namespace orrery::kernels::cuda {
namespace {

constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;
static_assert(kDigits == kThreads, "a thread of a block for each digit");
constexpr int kSortWarps = kThreads / kWarp;
constexpr int kTurns = 8;                 // rows of a thread
constexpr int kTile = kTurns * kThreads;  // rows of a block, whose warps have neighbouring parts

/// The rows before a pass.
struct UnsortedRows {
    std::int64_t rows = 0;
    const std::int32_t* keys = nullptr;
    std::int64_t first_key = 0, places = 0;
    const SortedRow* sorted = nullptr;  // by lower digits; null before the first pass
    __device__ SortedRow at(std::int64_t i) const {
        if (sorted != nullptr) return sorted[i];
        const std::int64_t place = keys[i] - first_key;
        const bool is_here = place >= 0 && place < places;
        return {static_cast<std::int32_t>(is_here ? place : places), static_cast<std::int32_t>(i)};
    }
};

struct Digit {
    int shift = 0, bits = 0;
    __device__ unsigned of(std::int32_t place) const {
        return (static_cast<unsigned>(place) >> shift) & ((1U << bits) - 1);
    }
};

/// The lanes with a row whose digit is the same. Of lanes without a row the result means nothing.
__device__ unsigned lanes_with(unsigned digit, int bits, bool is_row) {
    unsigned same = __ballot_sync(kAllLanes, is_row ? 1 : 0);
    for (int b = 0; b < bits; ++b) {
        const unsigned bit = (digit >> b) & 1U;
        const unsigned ones = __ballot_sync(kAllLanes, static_cast<int>(bit));
        same &= bit != 0 ? ones : ~ones;
    }
    return same;
}

/// counts[tile][digit], and ranks[row]: how many rows before this one in its tile have its digit.
__global__ void count_digits_kernel(UnsortedRows from, Digit digit, std::int32_t* ranks, std::int32_t* counts) {
    __shared__ std::int32_t in_warp[kSortWarps][kDigits];
    const unsigned warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    for (int w = 0; w < kSortWarps; ++w) in_warp[w][threadIdx.x] = 0;
    __syncthreads();
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kTile + warp * (kTurns * kWarp) + lane;
    unsigned digits[kTurns];
    std::int32_t before[kTurns];  // in the warp's part of the tile
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
        const std::int64_t i = first + turn * kWarp;
        digits[turn] = i < from.rows ? digit.of(from.at(i).place) : 0;
    }
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
        if (first - lane + turn * kWarp >= from.rows) continue;  // no lane has a row
        const bool is_row = first + turn * kWarp < from.rows;
        const unsigned same = lanes_with(digits[turn], digit.bits, is_row);
        const unsigned lower = same & ((1U << lane) - 1);
        std::int32_t& count = in_warp[warp][digits[turn]];
        if (is_row) before[turn] = count + __popc(lower);
        __syncwarp();  // until all lanes have read the count
        if (is_row && lower == 0) count += __popc(same);
        __syncwarp();
    }
    __syncthreads();
    std::int32_t sum = 0;
    for (int w = 0; w < kSortWarps; ++w) {
        const std::int32_t count = in_warp[w][threadIdx.x];
        in_warp[w][threadIdx.x] = sum;
        sum += count;
    }
    counts[static_cast<std::int64_t>(blockIdx.x) * kDigits + threadIdx.x] = sum;
    __syncthreads();
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
        const std::int64_t i = first + turn * kWarp;
        if (i < from.rows) ranks[i] = in_warp[warp][digits[turn]] + before[turn];
    }
}

/// The sum over the threads before this one in a block of kThreads; `shared` has an element per warp.
__device__ std::int32_t sum_before(std::int32_t value, std::int32_t* shared) {
    const unsigned warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    std::int32_t before = 0, all = value;  // of the lanes that differ in the bits so far
    for (unsigned bit = 1; bit < kWarp; bit *= 2) {
        const std::int32_t other = __shfl_xor_sync(kAllLanes, all, static_cast<int>(bit));
        if ((lane & bit) != 0) before += other;
        all += other;
    }
    if (lane == 0) shared[warp] = all;
    __syncthreads();
    for (unsigned w = 0; w < warp; ++w) before += shared[w];
    return before;
}

/// Replaces each count by the number of rows with a lower digit, or with the same digit in an earlier tile. A thread
/// for each digit goes through the tiles, which are few: one block will do, and its reads are of neighbouring counts.
__global__ void add_counts_kernel(std::int64_t tiles, std::int32_t* counts) {
    __shared__ std::int32_t shared[kSortWarps];
    std::int32_t* const own = counts + threadIdx.x;
    std::int32_t sum = 0;
#pragma unroll 8
    for (std::int64_t tile = 0; tile < tiles; ++tile) sum += own[tile * kDigits];
    std::int32_t next = sum_before(sum, shared);
#pragma unroll 8
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
        const std::int32_t count = own[tile * kDigits];
        own[tile * kDigits] = next;
        next += count;
    }
}

void sort_by_digit(StreamHandle stream, const UnsortedRows& from, Digit digit, std::int32_t* ranks,
                   std::int32_t* counts, SortedRow* to) {
    const unsigned tiles = blocks_for(from.rows, kTile);
    launch(stream, tiles, kThreads, "sort_rows", count_digits_kernel, from, digit, ranks, counts);
    launch(stream, 1, kThreads, "sort_rows", add_counts_kernel, tiles, counts);
    for_each(stream, from.rows, "sort_rows", [=] __device__(std::int64_t i) {
        const SortedRow one = from.at(i);
        to[counts[i / kTile * kDigits + digit.of(one.place)] + ranks[i]] = one;
    });
}

}  // namespace

std::int64_t sort_bytes(std::int64_t rows) {
    constexpr std::int64_t kWord = sizeof(std::int32_t);
    constexpr std::int64_t kOfTile = kTile * (2 * std::int64_t{sizeof(SortedRow)} + kWord) + kDigits * kWord;
    return (rows + kTile - 1) / kTile * kOfTile;
}

const SortedRow* sort_rows(StreamHandle stream, std::int64_t rows, const std::int32_t* keys, std::int64_t first_key,
                           std::int64_t places, void* scratch) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    ORRERY_CHECK(rows <= kMost && places <= kMost, "too many rows or keys for 32-bit indices");
    const std::int64_t in_tiles = (rows + kTile - 1) / kTile * kTile;
    auto* to = static_cast<SortedRow*>(scratch);
    SortedRow* other = to + in_tiles;
    auto* const ranks = reinterpret_cast<std::int32_t*>(other + in_tiles);
    std::int32_t* const counts = ranks + in_tiles;
    // As few passes as possible, with digits of about the same length.
    const int bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(places)));
    const int passes = std::max((bits + kDigitBits - 1) / kDigitBits, 1);
    const int bits_of_pass = (bits + passes - 1) / passes;
    UnsortedRows from{.rows = rows, .keys = keys, .first_key = first_key, .places = places};
    for (int pass = 0; pass < passes; ++pass) {
        sort_by_digit(stream, from, {.shift = pass * bits_of_pass, .bits = bits_of_pass}, ranks, counts, to);
        from.sorted = to;
        std::swap(to, other);
    }
    return from.sorted;
}

}  // namespace orrery::kernels::cuda
