// bfloat16: the upper half of an IEEE 754 single. Stored as its bits; arithmetic is done in fp32.
#pragma once

#include <bit>
#include <cstdint>

namespace orrery {

/// Exact.
[[nodiscard]] constexpr float from_bf16(std::uint16_t bits) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Rounds to nearest, ties to even; what is too large becomes infinity. NaN stays NaN, made quiet: the bits that say so
/// may all be in the lower half.
[[nodiscard]] constexpr std::uint16_t to_bf16(float value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const std::uint32_t quiet = (bits >> 16) | 0x40U;
    return static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
}

}  // namespace orrery
