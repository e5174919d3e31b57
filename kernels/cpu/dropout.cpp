#include "kernels/dropout.h"

#include <vector>

#include "kernels/cpu/vector.h"
#include "kernels/row_mask.h"

namespace orrery::kernels {
namespace {

/// Processes one row; `a` may be null.
ORRERY_VECTOR
void drop_row(const RowMask& row, float scale, std::int64_t width, const float* a, const float* b, const float* bias,
              float* y, std::uint8_t* mask) {
    const RowMask own = row;  // a copy, which the compiler knows no store can change
    const auto elements = static_cast<std::int32_t>(width);
    if (a == nullptr) {
        ORRERY_INDEPENDENT
        for (std::int32_t i = 0; i < elements; ++i) {
            const bool kept = own.keeps(static_cast<std::uint32_t>(i));
            y[i] = kept ? (b[i] + bias[i]) * scale : 0.0F;
            mask[i] = kept ? 1 : 0;
        }
        return;
    }
    ORRERY_INDEPENDENT
    for (std::int32_t i = 0; i < elements; ++i) {
        const bool kept = own.keeps(static_cast<std::uint32_t>(i));
        y[i] = a[i] + (kept ? (b[i] + bias[i]) * scale : 0.0F);
        mask[i] = kept ? 1 : 0;
    }
}

}  // namespace

void residual_add_dropout(const DropoutRows& rows, const float* a, const float* b, const float* bias,
                          const float* second_bias, float* y, std::uint8_t* mask) {
    std::vector<float> biases(static_cast<std::size_t>(rows.width), 0.0F);
    for (const float* one : {bias, second_bias}) {
        for (std::size_t i = 0; one != nullptr && i < biases.size(); ++i) biases[i] += one[i];
    }
    const Dropout& dropout = rows.dropout;
    const std::int32_t threshold = RowMask::threshold(dropout.probability);
    const float scale = dropout.scale();
    std::int64_t at = 0;
    for (const PositionRun& run : rows.positions) {
        for (std::int64_t position = run.first; position < run.first + run.count; ++position) {
            for (const std::int64_t sample : dropout.samples) {
                drop_row(RowMask(dropout.key, sample, position, threshold), scale, rows.width,
                         a == nullptr ? nullptr : a + at, b + at, biases.data(), y + at, mask + at);
                at += rows.width;
            }
        }
    }
}

ORRERY_VECTOR
void dropout_backward(std::int64_t elements, double probability, const float* dy, const std::uint8_t* mask, float* dx) {
    const float scale = Dropout{.probability = probability, .samples = {}}.scale();
    ORRERY_INDEPENDENT
    for (std::int64_t i = 0; i < elements; ++i) dx[i] = mask[i] != 0 ? dy[i] * scale : 0.0F;
}

}  // namespace orrery::kernels
