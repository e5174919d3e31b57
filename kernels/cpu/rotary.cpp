// Rotary positions: q and k heads turned by angles that grow with the position.
#include <cmath>
#include <numbers>

#include "kernels/cpu/vector.h"
#include "kernels/kernels.h"

namespace orrery::kernels {
namespace {

double scaled_frequency(const RotaryFrequencies& f, double frequency) {
    switch (f.scaling) {
        case RotaryFrequencies::Scaling::none:
            return frequency;
        case RotaryFrequencies::Scaling::linear:
            return frequency / f.factor;
        case RotaryFrequencies::Scaling::llama3: {
            const double wavelength = 2.0 * std::numbers::pi / frequency;
            const double original = static_cast<double>(f.original_max_positions);
            if (wavelength < original / f.high_frequency_factor) return frequency;
            if (wavelength > original / f.low_frequency_factor) return frequency / f.factor;
            const double share =
                (original / wavelength - f.low_frequency_factor) / (f.high_frequency_factor - f.low_frequency_factor);
            return (1.0 - share) * frequency / f.factor + share * frequency;
        }
    }
    return frequency;
}

}  // namespace

void rotary_table(const RotaryFrequencies& frequencies, std::int64_t positions, std::int64_t head_dim, float* cosines,
                  float* sines) {
    const std::int64_t half = head_dim / 2;
    for (std::int64_t i = 0; i < half; ++i) {
        const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
        const double frequency = scaled_frequency(frequencies, std::pow(frequencies.theta, exponent));
        for (std::int64_t position = 0; position < positions; ++position) {
            const double angle = static_cast<double>(position) * frequency;
            cosines[position * half + i] = static_cast<float>(std::cos(angle));
            sines[position * half + i] = static_cast<float>(std::sin(angle));
        }
    }
}

ORRERY_VECTOR
void rotate(const HeadShape& shape, std::int64_t micro_batch, const float* cosines, const float* sines, bool inverse,
            float* qkv) {
    const std::int64_t half = shape.head_dim / 2;
    const float direction = inverse ? -1.0F : 1.0F;
    for (std::int64_t row = 0; row < shape.rows; ++row) {
        const float* c = cosines + row / micro_batch * half;
        const float* s = sines + row / micro_batch * half;
        float* head = qkv + row * shape.row_width();
        for (std::int64_t h = 0; h < shape.heads + shape.kv_heads; ++h, head += shape.head_dim) {
            float* other = head + half;
            ORRERY_INDEPENDENT
            for (std::int64_t i = 0; i < half; ++i) {
                const float a = head[i];
                const float b = other[i];
                const float sine = direction * s[i];
                head[i] = a * c[i] - b * sine;
                other[i] = b * c[i] + a * sine;
            }
        }
    }
}

}  // namespace orrery::kernels
