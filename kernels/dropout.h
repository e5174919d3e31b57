// Dropout by masks that depend on what an element is, never on who computes it: every rank that has the element, in
// whatever part of the batch, the sequence or the heads, and whenever it is computed again, keeps or drops it alike.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/views.h"

namespace orrery::kernels {

/// Elements are dropped with `probability`; those that are kept are divided by 1 - probability. Element i of a row is
/// kept as a hash of i and of (key, the row's sample, the row's position) says.
struct Dropout {
    double probability = 0;  // in [0, 1), as a multiple of 2^-24
    std::uint64_t key = 0;   // of all that has masks of its own: a training's seed, the layer, the place in it
    std::span<const std::int64_t> samples;  // global indices of the micro-batch's samples
    [[nodiscard]] float scale() const { return static_cast<float>(1.0 / (1.0 - probability)); }
};

struct DropoutRows {
    std::span<const PositionRun> positions;  // rows are ordered by (position, sample)
    std::int64_t width = 0;
    Dropout dropout;
};
/// y = a + dropout(b + bias + second_bias), mask[rows, width] = 1 where an element is kept and 0 where it is not. a and
/// the biases, [width] each, may be null; y may be a or b.
void residual_add_dropout(const DropoutRows& rows, const float* a, const float* b, const float* bias,
                          const float* second_bias, float* y, std::uint8_t* mask);
/// dx = dy / (1 - probability) where mask is 1, otherwise 0; dx may be dy.
void dropout_backward(std::int64_t elements, double probability, const float* dy, const std::uint8_t* mask, float* dx);

}  // namespace orrery::kernels
