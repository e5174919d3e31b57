// Rotary position embedding: rotates q and k heads by angles proportional to the position.
#include "kernels/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"
#include "kernels/cpu/vector.h"
#include "kernels/kernels.h"

namespace orrery::kernels {
namespace {

/// YaRN: the weight of the stretched frequency for pair i of d/2.
double yarn_share(const RotaryFrequencies& f, std::int64_t i, std::int64_t head_dim) {
    // The (fractional) index of the pair that turns `turns` times within the original context.
    const auto pair_of = [&](double turns) {
        return static_cast<double>(head_dim) *
               std::log(static_cast<double>(f.original_max_positions) / (turns * 2.0 * std::numbers::pi)) /
               (2.0 * std::log(f.theta));
    };
    const double low = std::max(std::floor(pair_of(f.beta_fast)), 0.0);
    const double high = std::min(std::ceil(pair_of(f.beta_slow)), static_cast<double>(head_dim - 1));
    const double width = high == low ? 0.001 : high - low;
    return std::clamp((static_cast<double>(i) - low) / width, 0.0, 1.0);
}

double frequency_of(const RotaryFrequencies& f, std::int64_t i, std::int64_t head_dim) {
    const double frequency = std::pow(f.theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
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
        case RotaryFrequencies::Scaling::yarn: {
            const double share = yarn_share(f, i, head_dim);
            return share * frequency / f.factor + (1.0 - share) * frequency;
        }
    }
    return frequency;
}

/// y may be x.
ORRERY_INLINE void rotate_head(std::int64_t half, const float* cosines, const float* sines, float direction,
                               const float* x, float* y) {
    ORRERY_INDEPENDENT
    for (std::int64_t i = 0; i < half; ++i) {
        const float a = x[i];
        const float b = x[half + i];
        const float sine = direction * sines[i];
        y[i] = a * cosines[i] - b * sine;
        y[half + i] = b * cosines[i] + a * sine;
    }
}

void check_rows(const Rotation& rotation, std::int64_t rows) {
    std::int64_t positions = 0;
    for (const PositionRun& run : rotation.positions) positions += run.count;
    ORRERY_CHECK(positions * rotation.micro_batch == rows, "the number of rows does not match the number of positions");
}

/// Rotates the rows of one run of positions; `qkv` points to the first of them.
ORRERY_VECTOR
void rotate_run(const HeadShape& shape, const Rotation& rotation, const PositionRun& run, float direction, float* qkv) {
    const std::int64_t half = rotation.width / 2;
    for (std::int64_t row = 0; row < run.count * rotation.micro_batch; ++row) {
        const std::int64_t at = (run.first + row / rotation.micro_batch) * half;
        float* head = qkv + row * shape.row_width();
        for (std::int64_t h = 0; h < shape.heads + shape.kv_heads; ++h, head += shape.head_dim) {
            rotate_head(half, rotation.cosines + at, rotation.sines + at, direction, head, head);
        }
    }
}

ORRERY_VECTOR
void latent_forward_row(const LatentHeads& shape, const float* cosines, const float* sines, const float* q,
                        const float* kv, const float* k_rope, float* qkv) {
    const std::int64_t half = shape.rope_dim / 2, head_dim = shape.nope_dim + shape.rope_dim;
    float* k = qkv + shape.q_width();
    float* v = k + shape.q_width();
    for (std::int64_t head = 0; head < shape.heads; ++head) {
        for (std::int64_t i = 0; i < shape.nope_dim; ++i) qkv[i] = q[i];
        rotate_head(half, cosines, sines, 1.0F, q + shape.nope_dim, qkv + shape.nope_dim);
        for (std::int64_t i = 0; i < shape.nope_dim; ++i) k[i] = kv[i];
        rotate_head(half, cosines, sines, 1.0F, k_rope, k + shape.nope_dim);
        for (std::int64_t i = 0; i < shape.value_dim; ++i) v[i] = kv[shape.nope_dim + i];
        q += head_dim;
        qkv += head_dim;
        k += head_dim;
        v += shape.value_dim;
        kv += shape.nope_dim + shape.value_dim;
    }
}

ORRERY_VECTOR
void latent_backward_row(const LatentHeads& shape, const float* cosines, const float* sines, const float* dqkv,
                         float* dq, float* dkv, float* dk_rope) {
    const std::int64_t half = shape.rope_dim / 2, head_dim = shape.nope_dim + shape.rope_dim;
    const float* dk = dqkv + shape.q_width();
    const float* dv = dk + shape.q_width();
    for (std::int64_t i = 0; i < shape.rope_dim; ++i) dk_rope[i] = 0.0F;
    for (std::int64_t head = 0; head < shape.heads; ++head) {
        for (std::int64_t i = 0; i < shape.nope_dim; ++i) dq[i] = dqkv[i];
        rotate_head(half, cosines, sines, -1.0F, dqkv + shape.nope_dim, dq + shape.nope_dim);
        for (std::int64_t i = 0; i < shape.nope_dim; ++i) dkv[i] = dk[i];
        for (std::int64_t i = 0; i < shape.rope_dim; ++i) dk_rope[i] += dk[shape.nope_dim + i];
        for (std::int64_t i = 0; i < shape.value_dim; ++i) dkv[shape.nope_dim + i] = dv[i];
        dqkv += head_dim;
        dq += head_dim;
        dk += head_dim;
        dv += shape.value_dim;
        dkv += shape.nope_dim + shape.value_dim;
    }
    rotate_head(half, cosines, sines, -1.0F, dk_rope, dk_rope);  // rotates the sum, because the rotation is linear
}

/// Calls body(row, offset of its position in the tables).
template <typename Body>
void for_each_row(const LatentHeads& shape, const Rotation& rotation, const Body& body) {
    check_rows(rotation, shape.rows);
    ORRERY_CHECK(rotation.width == shape.rope_dim, "the width of the rotation differs from that of the rope part");
    std::int64_t row = 0;
    for (const PositionRun& run : rotation.positions) {
        for (std::int64_t i = 0; i < run.count * rotation.micro_batch; ++i, ++row) {
            body(row, (run.first + i / rotation.micro_batch) * (rotation.width / 2));
        }
    }
}

}  // namespace

double yarn_magnitude(double factor, double mscale) {
    return factor > 1.0 ? 1.0 + 0.1 * mscale * std::log(factor) : 1.0;
}

void rotary_table(const RotaryFrequencies& frequencies, std::int64_t positions, std::int64_t head_dim, float* cosines,
                  float* sines) {
    const std::int64_t half = head_dim / 2;
    for (std::int64_t i = 0; i < half; ++i) {
        const double frequency = frequency_of(frequencies, i, head_dim);
        for (std::int64_t position = 0; position < positions; ++position) {
            const double angle = static_cast<double>(position) * frequency;
            cosines[position * half + i] = static_cast<float>(frequencies.magnitude * std::cos(angle));
            sines[position * half + i] = static_cast<float>(frequencies.magnitude * std::sin(angle));
        }
    }
}

void rotate(const HeadShape& shape, const Rotation& rotation, bool inverse, float* qkv) {
    check_rows(rotation, shape.rows);
    ORRERY_CHECK(rotation.width % 2 == 0 && rotation.width <= shape.head_dim,
                 "the width of the rotation must be even and at most that of a head");
    for (const PositionRun& run : rotation.positions) {
        rotate_run(shape, rotation, run, inverse ? -1.0F : 1.0F, qkv);
        qkv += run.count * rotation.micro_batch * shape.row_width();
    }
}

void rotate(const HeadShape& shape, std::int64_t micro_batch, const float* cosines, const float* sines, bool inverse,
            float* qkv) {
    const PositionRun run{0, shape.rows / micro_batch};
    const Rotation rotation{{&run, 1}, micro_batch, shape.head_dim / 2 * 2, cosines, sines};
    rotate(shape, rotation, inverse, qkv);
}

void latent_rotate_forward(const LatentHeads& shape, const Rotation& rotation, const float* q, const float* kv,
                           ConstRows k_rope, float* qkv) {
    for_each_row(shape, rotation, [&](std::int64_t row, std::int64_t angles) {
        latent_forward_row(shape, rotation.cosines + angles, rotation.sines + angles, q + row * shape.q_width(),
                           kv + row * shape.kv_width(), k_rope.data + row * k_rope.width,
                           qkv + row * shape.row_width());
    });
}

void latent_rotate_backward(const LatentHeads& shape, const Rotation& rotation, const float* dqkv, float* dq,
                            float* dkv, Rows dk_rope) {
    for_each_row(shape, rotation, [&](std::int64_t row, std::int64_t angles) {
        latent_backward_row(shape, rotation.cosines + angles, rotation.sines + angles, dqkv + row * shape.row_width(),
                            dq + row * shape.q_width(), dkv + row * shape.kv_width(),
                            dk_rope.data + row * dk_rope.width);
    });
}

}  // namespace orrery::kernels
