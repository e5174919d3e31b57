// Conversions between fp32 and the two 16-bit floating-point types, which are stored as bit patterns: bf16 has 8
// exponent and 7 mantissa bits, fp16 (IEEE 754 binary16) 5 and 10.
//
// Widening is exact. Narrowing rounds to nearest, ties to even; values that are too large become infinity, subnormals
// are kept. NaN stays a quiet NaN with its sign and the upper bits of its payload. There are no branches, so that loops
// over these functions can be vectorised.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace orrery {

namespace detail {
/// condition ? yes : no, written as a mask because compilers sometimes turn the operator ?: into a branch.
[[nodiscard]] constexpr std::uint32_t select_bits(bool condition, std::uint32_t yes, std::uint32_t no) {
    const std::uint32_t mask = 0U - static_cast<std::uint32_t>(condition);
    return (yes & mask) | (no & ~mask);
}
}  // namespace detail

[[nodiscard]] constexpr float from_bf16(std::uint16_t bits) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

[[nodiscard]] constexpr std::uint16_t to_bf16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const bool is_nan = (bits & 0x7FFF'FFFFU) > 0x7F80'0000U;
    const std::uint32_t even = (bits >> 16U) & 1U;
    const std::uint32_t rounded = (bits + 0x7FFFU + even) >> 16U;  // a carry out of the mantissa is the next exponent
    const std::uint32_t quiet = (bits >> 16U) | 0x0040U;
    return static_cast<std::uint16_t>(detail::select_bits(is_nan, quiet, rounded));
}

[[nodiscard]] constexpr float from_fp16(std::uint16_t bits) {
    constexpr std::uint32_t kRebias = (127U - 15U) << 23U;
    constexpr std::uint32_t kSmallestNormal = (127U - 14U) << 23U;  // 2^-14
    const std::uint32_t sign = (bits & 0x8000U) << 16U;
    const std::uint32_t magnitude = (bits & 0x7FFFU) << 13U;  // in fp32's bit positions, with fp16's exponent bias
    // 2^-14 (1 + m/1024) - 2^-14 is exactly the subnormal 2^-24 m.
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude + kSmallestNormal) -
                                                                 std::bit_cast<float>(kSmallestNormal));
    const std::uint32_t normal = magnitude + kRebias;
    const std::uint32_t special = magnitude | 0x7F80'0000U;
    const std::uint32_t finite = detail::select_bits(magnitude < 0x0080'0000U, subnormal, normal);
    return std::bit_cast<float>(sign | detail::select_bits(magnitude >= 0x0F80'0000U, special, finite));
}

[[nodiscard]] constexpr std::uint16_t to_fp16(float value) {
    constexpr std::uint32_t kInfinity = 0x7F80'0000U;
    constexpr std::uint32_t kTooLarge = (127U + 16U) << 23U;        // 2^16
    constexpr std::uint32_t kSmallestNormal = (127U - 14U) << 23U;  // 2^-14
    constexpr std::uint32_t kRebias = (127U - 15U) << 23U;
    constexpr std::uint32_t kHalf = (127U - 1U) << 23U;
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 16U) & 0x8000U;
    const std::uint32_t magnitude = bits & 0x7FFF'FFFFU;
    // The unit in the last place of 0.5 is 2^-24, fp16's smallest subnormal, so the addition rounds to it.
    const float small = std::bit_cast<float>(std::min(magnitude, kSmallestNormal));
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(small + std::bit_cast<float>(kHalf)) - kHalf;
    const std::uint32_t even = (magnitude >> 13U) & 1U;
    const std::uint32_t normal = (magnitude - kRebias + 0x0FFFU + even) >> 13U;  // may carry up to infinity
    const std::uint32_t quiet = 0x7E00U | ((magnitude >> 13U) & 0x03FFU);
    const std::uint32_t special = detail::select_bits(magnitude > kInfinity, quiet, 0x7C00U);
    const std::uint32_t finite = detail::select_bits(magnitude < kSmallestNormal, subnormal, normal);
    return static_cast<std::uint16_t>(sign | (detail::select_bits(magnitude >= kTooLarge, special, finite)));
}

}  // namespace orrery
