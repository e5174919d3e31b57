// Rotary positions: tables of cosines and sines, and the rotation of packed rows and of latent attention's parts.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/views.h"

namespace orrery::kernels {

/// Inverse frequencies theta^(-2i/d). `linear`: every frequency is divided by `factor`. `llama3`: wavelengths above
/// original_max_positions / low_frequency_factor are stretched by `factor`, those below original_max_positions /
/// high_frequency_factor are kept, and those between are blended (Llama 3.1). `yarn` (arXiv 2309.00071): pairs that
/// turn more than beta_fast times in original_max_positions are kept, those that turn less than beta_slow times are
/// stretched, and those between are blended by their index.
struct RotaryFrequencies {
    enum class Scaling : std::uint8_t { none, linear, llama3, yarn } scaling = Scaling::none;
    double theta = 10000.0;
    double factor = 1.0;
    double low_frequency_factor = 1.0;
    double high_frequency_factor = 1.0;
    std::int64_t original_max_positions = 0;
    double beta_fast = 32.0;
    double beta_slow = 1.0;
    double magnitude = 1.0;  // of the rotated vectors: a factor of cosines and sines (yarn)
};
/// 1 + 0.1 mscale ln(factor). YaRN's magnitude with mscale 1; where a model gives mscale and mscale_all_dim (DeepSeek)
/// the magnitude is the ratio of their two values, and attention scores are scaled by the square of the second.
[[nodiscard]] double yarn_magnitude(double factor, double mscale);
/// cosines[positions, d/2] and sines[positions, d/2] of position * inverse frequency. d is the width that is rotated.
void rotary_table(const RotaryFrequencies& frequencies, std::int64_t positions, std::int64_t head_dim, float* cosines,
                  float* sines);

/// Which rows stand for which positions, and the tables, whose row 0 belongs to position 0.
struct Rotation {
    std::span<const PositionRun> positions;  // row = (index of its position among all of them) * micro_batch + sample
    std::int64_t micro_batch = 0;
    std::int64_t width = 0;  // of a head, even: the first so many elements are rotated, the others stay as they are
    const float* cosines = nullptr;
    const float* sines = nullptr;
};
/// Rotates q and k of each row in place, pairing elements (i, i + width/2) of every head. `inverse` turns the other
/// way, which is the backward pass.
void rotate(const HeadShape& shape, const Rotation& rotation, bool inverse, float* qkv);
/// Whole heads of rows from position 0 on.
void rotate(const HeadShape& shape, std::int64_t micro_batch, const float* cosines, const float* sines, bool inverse,
            float* qkv);

/// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): a head of q and k is a part without and one with
/// position, and all heads share the latter of k.
struct LatentHeads {
    std::int64_t rows = 0;
    std::int64_t heads = 0;
    std::int64_t nope_dim = 0;
    std::int64_t rope_dim = 0;  // the rotation's width
    std::int64_t value_dim = 0;
    [[nodiscard]] std::int64_t q_width() const { return heads * (nope_dim + rope_dim); }
    [[nodiscard]] std::int64_t kv_width() const { return heads * (nope_dim + value_dim); }
    [[nodiscard]] std::int64_t row_width() const { return 2 * q_width() + heads * value_dim; }
};
/// q[rows, heads * (nope | rope)], kv[rows, heads * (nope of k | v)], k_rope[rows, rope] -> qkv[rows, q | k | v] with
/// heads of nope + rope in q and k and of value_dim in v; the rope parts are rotated.
void latent_rotate_forward(const LatentHeads& shape, const Rotation& rotation, const float* q, const float* kv,
                           ConstRows k_rope, float* qkv);
/// dqkv -> dq, dkv, and dk_rope: the sum over the heads.
void latent_rotate_backward(const LatentHeads& shape, const Rotation& rotation, const float* dqkv, float* dq,
                            float* dkv, Rows dk_rope);

}  // namespace orrery::kernels
