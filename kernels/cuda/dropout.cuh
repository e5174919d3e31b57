// Private to the CUDA kernels: dropout as an argument of kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/error.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/dropout.h"
#include "kernels/row_mask.h"

namespace orrery::kernels::cuda {

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
        threshold = RowMask::threshold(dropout.probability);
        scale = dropout.scale();
    }
};

}  // namespace orrery::kernels::cuda
