// The hash for dropout, of CPU and GPU kernels: a few 32-bit operations per element, which compilers vectorize.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/random.h"

namespace orrery::kernels {

/// Decides which elements of a row are kept. Its functions are constexpr so that they are device code, too.
class RowMask {
  public:
    [[gnu::always_inline]] constexpr RowMask(std::uint64_t key, std::int64_t sample, std::int64_t position,
                                             std::int32_t threshold)
        : threshold_(threshold) {
        const std::uint64_t row = static_cast<std::uint64_t>(sample) << 32 | static_cast<std::uint64_t>(position);
        const std::uint64_t bits = mix64(key ^ mix64(row));
        low_ = static_cast<std::uint32_t>(bits);
        high_ = static_cast<std::uint32_t>(bits >> 32);
    }
    /// The threshold for a probability: elements are dropped if the upper 24 bits of their hash are below it.
    static std::int32_t threshold(double probability) {
        return static_cast<std::int32_t>(std::lround(probability * 0x1.0p24));
    }
    /// The rounds of lowbias32 (Wellons 2018), with one half of the row's key mixed in before each round.
    [[nodiscard, gnu::always_inline]] constexpr bool keeps(std::uint32_t element) const {
        std::uint32_t x = element ^ low_;
        x = (x ^ (x >> 16)) * 0x7feb352dU;
        x ^= high_;
        x = (x ^ (x >> 15)) * 0x846ca68bU;
        x ^= x >> 16;
        return static_cast<std::int32_t>(x >> 8) >= threshold_;
    }

  private:
    std::uint32_t low_, high_;
    std::int32_t threshold_;
};

}  // namespace orrery::kernels
