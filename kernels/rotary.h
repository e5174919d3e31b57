// Rotary position embedding: tables of cosines and sines, and the rotation of packed rows and of latent attention.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/views.h"

namespace orrery::kernels {

/// Inverse frequencies theta^(-2i/d). `linear`: every frequency is divided by `factor`. `llama3`: wavelengths above
/// original_max_positions / low_frequency_factor are stretched by `factor`, those below original_max_positions /
/// high_frequency_factor are kept, and those between are interpolated (Llama 3.1). `yarn` (arXiv 2309.00071): pairs
/// that turn more than beta_fast times within original_max_positions are kept, those that turn less than beta_slow
/// times are stretched by `factor`, and those between are interpolated by their index.
struct RotaryFrequencies {
    enum class Scaling : std::uint8_t { none, linear, llama3, yarn } scaling = Scaling::none;
    double theta = 10000.0;
    double factor = 1.0;
    double low_frequency_factor = 1.0;
    double high_frequency_factor = 1.0;
    std::int64_t original_max_positions = 0;
    double beta_fast = 32.0;
    double beta_slow = 1.0;
    double magnitude = 1.0;  // yarn: factor on cosines and sines, and so on the rotated vectors
};
/// 1 + 0.1 mscale ln(factor), or 1 if factor <= 1. With mscale 1 this is YaRN's magnitude. If a model gives mscale and
/// mscale_all_dim (DeepSeek), the magnitude is the ratio of the values for the two, and attention scores are scaled by
/// the square of the second.
[[nodiscard]] double yarn_magnitude(double factor, double mscale);
/// cosines[positions, d/2] and sines[positions, d/2] of position * inverse frequency; d = head_dim is the rotated
/// width.
void rotary_table(const RotaryFrequencies& frequencies, std::int64_t positions, std::int64_t head_dim, float* cosines,
                  float* sines);

/// The positions of the rows, and the tables, whose row 0 belongs to position 0.
struct Rotation {
    std::span<const PositionRun> positions;  // row = (index of its position among all of them) * micro_batch + sample
    std::int64_t micro_batch = 0;
    std::int64_t width = 0;  // even; the first `width` elements of a head are rotated, the others are kept
    const float* cosines = nullptr;
    const float* sines = nullptr;
};
/// Rotates q and k of each row in place, pairing elements (i, i + width/2) of every head. `inverse` rotates backwards,
/// for the backward pass.
void rotate(const HeadShape& shape, const Rotation& rotation, bool inverse, float* qkv);
/// Rotates whole heads, with rows from position 0 on.
void rotate(const HeadShape& shape, std::int64_t micro_batch, const float* cosines, const float* sines, bool inverse,
            float* qkv);

/// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): each head of q and k has a part without position (nope)
/// and a rotated part (rope); all heads share the rotated part of k.
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
/// heads of nope + rope in q and k and of value_dim in v. The rope parts are rotated.
void latent_rotate_forward(const LatentHeads& shape, const Rotation& rotation, const float* q, const float* kv,
                           ConstRows k_rope, float* qkv);
/// dqkv -> dq, dkv, and dk_rope, which is the sum over the heads.
void latent_rotate_backward(const LatentHeads& shape, const Rotation& rotation, const float* dqkv, float* dq,
                            float* dkv, Rows dk_rope);

}  // namespace orrery::kernels
