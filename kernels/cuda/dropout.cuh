// Private to the CUDA kernels: the masks of dropout, the same as those of kernels/cpu/row_mask.h.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/error.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/dropout.h"

namespace orrery::kernels::cuda {

/// mix64() of core/random.h.
__device__ inline std::uint64_t mixed(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

/// Dropout for kernels, which take the first sample instead of all.
struct Masks {
    std::uint64_t key = 0;
    std::int64_t first_sample = 0;
    std::int32_t threshold = 0;
    float scale = 1.0F;
    bool drops = false;

    Masks(const Dropout& dropout, std::int64_t micro_batch) : key(dropout.key), drops(dropout.probability > 0) {
        if (!drops) return;
        ORRERY_CHECK(static_cast<std::int64_t>(dropout.samples.size()) == micro_batch,
                     "dropout needs the index of each sample");
        first_sample = dropout.samples.front();
        for (std::size_t i = 0; i < dropout.samples.size(); ++i) {
            ORRERY_CHECK(dropout.samples[i] == first_sample + static_cast<std::int64_t>(i),
                         "the samples of a micro-batch on CUDA are consecutive");
        }
        threshold = static_cast<std::int32_t>(std::lround(dropout.probability * 0x1.0p24));
        scale = dropout.scale();
    }
};

/// Decides which elements of a row are kept.
class RowMask {
  public:
    __device__ RowMask(std::uint64_t key, std::int64_t sample, std::int64_t position, std::int32_t threshold)
        : threshold_(threshold) {
        const std::uint64_t row = static_cast<std::uint64_t>(sample) << 32 | static_cast<std::uint64_t>(position);
        const std::uint64_t bits = mixed(key ^ mixed(row));
        low_ = static_cast<std::uint32_t>(bits);
        high_ = static_cast<std::uint32_t>(bits >> 32);
    }
    [[nodiscard]] __device__ bool keeps(std::int64_t element) const {
        std::uint32_t x = static_cast<std::uint32_t>(element) ^ low_;
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

}  // namespace orrery::kernels::cuda
