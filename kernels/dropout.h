// Dropout whose masks depend only on the global identity of an element (sample, position, head, index). So every rank
// that holds the element keeps or drops it alike, under every parallelism and when it is recomputed.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/views.h"

namespace orrery::kernels {

/// Drops elements with `probability` and divides the kept ones by 1 - probability. A hash of i and of (key, the row's
/// sample, the row's position) decides whether element i of a row is kept.
struct Dropout {
    double probability = 0;  // in [0, 1), rounded to a multiple of 2^-24
    std::uint64_t key = 0;   // identifies the mask: a hash of the training's seed, the layer and the mask's name
    std::span<const std::int64_t> samples;  // global indices of the micro-batch's samples
    [[nodiscard]] float scale() const { return static_cast<float>(1.0 / (1.0 - probability)); }
};

struct DropoutRows {
    std::span<const PositionRun> positions;  // rows are ordered by (position, sample)
    std::int64_t width = 0;
    Dropout dropout;
};
/// y = a + dropout(b + bias + second_bias); mask[rows, width] is 1 for kept elements and 0 for dropped ones. `a` and
/// the biases, [width] each, may be null; y may be a or b.
void residual_add_dropout(const DropoutRows& rows, const float* a, const float* b, const float* bias,
                          const float* second_bias, float* y, std::uint8_t* mask);
/// dx = dy / (1 - probability) where mask is 1, otherwise 0; dx may be dy.
void dropout_backward(std::int64_t elements, double probability, const float* dy, const std::uint8_t* mask, float* dx);

}  // namespace orrery::kernels
