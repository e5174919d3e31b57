// Private to the CUDA kernels: loops over rows that only the device can count, and four elements at a time.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/each.cuh"
#include "kernels/cuda/row_count.h"

namespace orrery::kernels::cuda {

/// Called by whole warps.
__device__ inline std::int64_t rows_of(const RowCount& count) {
    if (count.counts == nullptr) return count.most;
    std::int64_t sum = 0;
    for (std::int64_t i = threadIdx.x % kWarp; i < count.entries; i += kWarp) sum += count.counts[i];
    return warp_sum(sum);
}

/// Every `blocks_per_row`-th block works on the same columns.
template <typename Body>
__global__ void each_counted_kernel(RowCount count, unsigned blocks_per_row, std::int64_t width, Body body) {
    const std::int64_t rows = rows_of(count);
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x % blocks_per_row) * blockDim.x + threadIdx.x;
    if (column >= width) return;
    const unsigned stride = gridDim.x / blocks_per_row;
    for (std::int64_t row = blockIdx.x / blocks_per_row; row < rows; row += stride) body(row, column);
}

/// Calls body(row, column) for all columns of all rows, without a division per element.
template <typename Body>
void for_each_counted(StreamHandle stream, const RowCount& count, std::int64_t width, const char* name, Body body) {
    // If only the device knows the number of rows, fewer blocks than rows, because each must add up the counts.
    constexpr std::int64_t kMostBlocks = 4096;
    const unsigned blocks_per_row = blocks_for(width);
    if (count.most == 0 || blocks_per_row == 0) return;
    const std::int64_t at_once =
        count.counts == nullptr ? count.most : std::clamp<std::int64_t>(kMostBlocks / blocks_per_row, 1, count.most);
    launch(stream, static_cast<unsigned>(at_once) * blocks_per_row, kThreads, name, each_counted_kernel<Body>, count,
           blocks_per_row, width, body);
}

/// Neighbouring elements that a thread reads and writes in one access: one, or four.
template <int kCount>
struct Some {
    float value[kCount];
};
using Four = Some<4>;
struct alignas(16) FourFp32 {
    float value[4];
};
struct alignas(8) FourBf16 {
    __nv_bfloat16 value[4];
};

/// Whether get4() and put4() may be used at elements that are multiples of four.
[[nodiscard]] inline bool takes_four(ConstFloats x) {
    const std::uintptr_t alignment = x.type == DType::bf16 ? alignof(FourBf16) : alignof(FourFp32);
    return reinterpret_cast<std::uintptr_t>(x.data) % alignment == 0;
}
/// The same for rows of this width, of all operands; those that are absent do not count.
template <typename... Operands>
[[nodiscard]] bool rows_take_four(std::int64_t width, const Operands&... operands) {
    return width % 4 == 0 && (takes_four(operands) && ...);
}

/// x[i … i + 3], in one access.
__device__ inline Four get4(ConstFloats x, std::int64_t i) {
    Four four;
    if (x.type == DType::bf16) {
        const FourBf16 read = *reinterpret_cast<const FourBf16*>(static_cast<const __nv_bfloat16*>(x.data) + i);
#pragma unroll
        for (int j = 0; j < 4; ++j) four.value[j] = __bfloat162float(read.value[j]);
    } else {
        const FourFp32 read = *reinterpret_cast<const FourFp32*>(static_cast<const float*>(x.data) + i);
#pragma unroll
        for (int j = 0; j < 4; ++j) four.value[j] = read.value[j];
    }
    return four;
}
__device__ inline void put4(Floats x, std::int64_t i, const Four& four) {
    if (x.type == DType::bf16) {
        FourBf16 written;
#pragma unroll
        for (int j = 0; j < 4; ++j) written.value[j] = __float2bfloat16_rn(four.value[j]);
        *reinterpret_cast<FourBf16*>(static_cast<__nv_bfloat16*>(x.data) + i) = written;
    } else {
        FourFp32 written;
#pragma unroll
        for (int j = 0; j < 4; ++j) written.value[j] = four.value[j];
        *reinterpret_cast<FourFp32*>(static_cast<float*>(x.data) + i) = written;
    }
}

/// x[i …]
template <int kCount>
__device__ Some<kCount> get_some(ConstFloats x, std::int64_t i) {
    if constexpr (kCount == 1) {
        return {{get(x, i)}};
    } else {
        return get4(x, i);
    }
}
/// Zeros if x is absent.
template <int kCount>
__device__ Some<kCount> get_some_or_zero(ConstFloats x, std::int64_t i) {
    return x.present() ? get_some<kCount>(x, i) : Some<kCount>{};
}
template <int kCount>
__device__ void put_some(Floats x, std::int64_t i, const Some<kCount>& some) {
    if constexpr (kCount == 1) {
        put(x, i, some.value[0]);
    } else {
        put4(x, i, some);
    }
}
/// The results of function(elements of each operand).
template <int kCount, typename Function, typename... Operands>
__device__ Some<kCount> apply(const Function& function, const Operands&... operands) {
    Some<kCount> results;
#pragma unroll
    for (int i = 0; i < kCount; ++i) results.value[i] = function(operands.value[i]...);
    return results;
}

/// Calls use(how many elements a thread takes at a time, as a constant). nvcc allows no lambda of the device in `use`;
/// for those there is InSome.
template <typename Use>
void with_count(bool in_fours, const Use& use) {
    if (in_fours) return use(std::integral_constant<int, 4>());
    use(std::integral_constant<int, 1>());
}

/// A body of the loops over rows that takes kCount elements at a time: body(row, first column, kCount as a constant).
template <int kCount, typename Body>
struct InSome {
    Body body;
    __device__ void operator()(std::int64_t row, std::int64_t some) const {
        body(row, some * kCount, std::integral_constant<int, kCount>());
    }
};
/// for_each_of_rows() and for_each_counted() for such a body, with four elements for each thread or one.
template <typename Body>
void for_some_of_rows(StreamHandle stream, std::int64_t rows, std::int64_t columns, bool in_fours, const char* name,
                      Body body) {
    if (in_fours) return for_each_of_rows(stream, rows, columns / 4, name, InSome<4, Body>{body});
    for_each_of_rows(stream, rows, columns, name, InSome<1, Body>{body});
}
template <typename Body>
void for_some_counted(StreamHandle stream, const RowCount& rows, std::int64_t width, bool in_fours, const char* name,
                      Body body) {
    if (in_fours) return for_each_counted(stream, rows, width / 4, name, InSome<4, Body>{body});
    for_each_counted(stream, rows, width, name, InSome<1, Body>{body});
}

}  // namespace orrery::kernels::cuda
