// bf16 of the CUDA toolkit, as far as Orrery's kernels use it; see cuda_runtime.h.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

struct __nv_bfloat16 {
    std::uint16_t bits;
};

/// To the nearest, halves to even; any NaN becomes the one NaN that NVIDIA's function returns.
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
    if (std::isnan(value)) return {0x7fff};
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U)};
}

inline float __bfloat162float(__nv_bfloat16 value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16U);
}

struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
    return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}
