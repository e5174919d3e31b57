// LayerNorm, RMSNorm and the per-head RMSNorm of q and k. Statistics and parameter gradients are summed in double.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "kernels/cpu/vector.h"
#include "kernels/kernels.h"

namespace orrery::kernels {
namespace {

/// Rows per block of a backward pass: small enough that x and dy of the block stay in cache between the parameter
/// gradients and the input gradients.
constexpr std::int64_t kRowBlock = 32;
constexpr std::int64_t kColumns = 256;

ORRERY_INLINE double wide(float x) {
    return static_cast<double>(x);
}

ORRERY_INLINE double mean_square(std::int64_t width, const float* x) {
    return lane_sum<double>(width, [&](std::int64_t i) { return wide(x[i]) * wide(x[i]); }) /
           static_cast<double>(width);
}

ORRERY_INLINE float inverse_root(double mean_of_squares, double epsilon) {
    return static_cast<float>(1.0 / std::sqrt(mean_of_squares + epsilon));
}

/// Copies the columns of wider rows that are not normalised.
void copy_other_columns(const NormShape& shape, const float* x, float* y) {
    const std::int64_t width = shape.width, stride = shape.row_width();
    if (stride > width && x != y) copy_columns(shape.rows, stride - width, {x + width, stride}, {y + width, stride});
}

/// One row of RMSNorm backward: dx = residual + inverse (dy w - xhat mean(dy w xhat)).
ORRERY_INLINE void rms_backward_row(std::int64_t width, const float* dy, const float* x, const float* weight,
                                    float inverse, const float* residual, float* dx) {
    const double dot = lane_sum<double>(width, [&](std::int64_t i) { return wide(dy[i] * weight[i]) * wide(x[i]); });
    const float factor =
        static_cast<float>(dot * wide(inverse) * wide(inverse) * wide(inverse) / static_cast<double>(width));
    if (residual != nullptr) {
        ORRERY_INDEPENDENT
        for (std::int64_t i = 0; i < width; ++i) {
            dx[i] = residual[i] + ((dy[i] * weight[i]) * inverse - x[i] * factor);
        }
    } else {
        ORRERY_INDEPENDENT
        for (std::int64_t i = 0; i < width; ++i) dx[i] = (dy[i] * weight[i]) * inverse - x[i] * factor;
    }
}

}  // namespace

ORRERY_VECTOR
void layer_norm_forward(const NormShape& shape, double epsilon, const float* x, const float* weight, const float* bias,
                        float* y, float* stats) {
    copy_other_columns(shape, x, y);
    for (std::int64_t row = 0; row < shape.rows; ++row) {
        const float* in = x + row * shape.row_width();
        float* out = y + row * shape.row_width();
        const double mean = lane_sum<double>(shape.width, [&](std::int64_t i) { return wide(in[i]); }) /
                            static_cast<double>(shape.width);
        const double variance = lane_sum<double>(shape.width,
                                                 [&](std::int64_t i) {
                                                     const double centred = wide(in[i]) - mean;
                                                     return centred * centred;
                                                 }) /
                                static_cast<double>(shape.width);
        const float centre = static_cast<float>(mean);
        const float inverse = inverse_root(variance, epsilon);
        stats[2 * row] = centre;
        stats[2 * row + 1] = inverse;
        ORRERY_INDEPENDENT
        for (std::int64_t i = 0; i < shape.width; ++i) {
            out[i] = ((in[i] - centre) * inverse) * weight[i] + bias[i];
        }
    }
}

namespace {

ORRERY_VECTOR
void layer_norm_input_gradient(const NormShape& shape, const float* dy, const float* x, const float* weight,
                               const float* stats, const float* residual, float* dx) {
    const std::int64_t width = shape.width, stride = shape.row_width();
    for (std::int64_t row = 0; row < shape.rows; ++row) {
        const float* d = dy + row * stride;
        const float* in = x + row * stride;
        float* out = dx + row * stride;
        const float centre = stats[2 * row];
        const float inverse = stats[2 * row + 1];
        double sum = 0.0;
        double dot = 0.0;
        lane_sums(
            width, [&](std::int64_t i) { return wide(d[i] * weight[i]); },
            [&](std::int64_t i) { return wide(d[i] * weight[i]) * wide(in[i] - centre); }, sum, dot);
        const float mean_gradient = static_cast<float>(sum / static_cast<double>(width));
        const float mean_dot = static_cast<float>(dot * wide(inverse) / static_cast<double>(width));
        if (residual != nullptr) {
            const float* base = residual + row * stride;
            ORRERY_INDEPENDENT
            for (std::int64_t i = 0; i < width; ++i) {
                const float normed = (in[i] - centre) * inverse;
                out[i] = base[i] + inverse * (d[i] * weight[i] - mean_gradient - normed * mean_dot);
            }
        } else {
            ORRERY_INDEPENDENT
            for (std::int64_t i = 0; i < width; ++i) {
                const float normed = (in[i] - centre) * inverse;
                out[i] = inverse * (d[i] * weight[i] - mean_gradient - normed * mean_dot);
            }
        }
    }
}

ORRERY_VECTOR
void layer_norm_parameter_gradient(const NormShape& shape, const float* dy, const float* x, const float* stats,
                                   float* dweight, float* dbias) {
    double weight_sums[kColumns];
    double bias_sums[kColumns];
    for (std::int64_t begin = 0; begin < shape.width; begin += kColumns) {
        const std::int64_t count = std::min(kColumns, shape.width - begin);
        for (std::int64_t i = 0; i < count; ++i) weight_sums[i] = bias_sums[i] = 0.0;
        for (std::int64_t row = 0; row < shape.rows; ++row) {
            const float* d = dy + row * shape.row_width() + begin;
            const float* in = x + row * shape.row_width() + begin;
            const float centre = stats[2 * row];
            const float inverse = stats[2 * row + 1];
            for (std::int64_t i = 0; i < count; ++i) {
                weight_sums[i] += wide(d[i] * ((in[i] - centre) * inverse));
                bias_sums[i] += wide(d[i]);
            }
        }
        for (std::int64_t i = 0; i < count; ++i) {
            dweight[begin + i] += static_cast<float>(weight_sums[i]);
            dbias[begin + i] += static_cast<float>(bias_sums[i]);
        }
    }
}

ORRERY_VECTOR
void rms_norm_input_gradient(const NormShape& shape, const float* dy, const float* x, const float* weight,
                             const float* stats, const float* residual, float* dx) {
    for (std::int64_t row = 0; row < shape.rows; ++row) {
        const std::int64_t at = row * shape.row_width();
        rms_backward_row(shape.width, dy + at, x + at, weight, stats[row],
                         residual != nullptr ? residual + at : nullptr, dx + at);
    }
}

ORRERY_VECTOR
void rms_norm_parameter_gradient(const NormShape& shape, const float* dy, const float* x, const float* stats,
                                 float* dweight) {
    double sums[kColumns];
    for (std::int64_t begin = 0; begin < shape.width; begin += kColumns) {
        const std::int64_t count = std::min(kColumns, shape.width - begin);
        for (std::int64_t i = 0; i < count; ++i) sums[i] = 0.0;
        for (std::int64_t row = 0; row < shape.rows; ++row) {
            const float* d = dy + row * shape.row_width() + begin;
            const float* in = x + row * shape.row_width() + begin;
            const float inverse = stats[row];
            for (std::int64_t i = 0; i < count; ++i) sums[i] += wide(d[i] * (in[i] * inverse));
        }
        for (std::int64_t i = 0; i < count; ++i) dweight[begin + i] += static_cast<float>(sums[i]);
    }
}

}  // namespace

void layer_norm_backward(const NormShape& shape, const float* dy, const float* x, const float* weight,
                         const float* stats, const float* residual, float* dx, float* dweight, float* dbias) {
    ORRERY_CHECK(residual == nullptr || shape.row_width() == shape.width,
                 "a residual needs rows without other columns");
    copy_other_columns(shape, dy, dx);
    for (std::int64_t row = 0; row < shape.rows; row += kRowBlock) {
        const NormShape block{std::min(kRowBlock, shape.rows - row), shape.width, shape.stride};
        const std::int64_t at = row * shape.row_width();
        layer_norm_parameter_gradient(block, dy + at, x + at, stats + 2 * row, dweight, dbias);
        layer_norm_input_gradient(block, dy + at, x + at, weight, stats + 2 * row,
                                  residual != nullptr ? residual + at : nullptr, dx + at);
    }
}

ORRERY_VECTOR
void rms_norm_forward(const NormShape& shape, double epsilon, const float* x, const float* weight, float* y,
                      float* stats) {
    copy_other_columns(shape, x, y);
    for (std::int64_t row = 0; row < shape.rows; ++row) {
        const float* in = x + row * shape.row_width();
        float* out = y + row * shape.row_width();
        const float inverse = inverse_root(mean_square(shape.width, in), epsilon);
        stats[row] = inverse;
        ORRERY_INDEPENDENT
        for (std::int64_t i = 0; i < shape.width; ++i) out[i] = (in[i] * inverse) * weight[i];
    }
}

void rms_norm_backward(const NormShape& shape, const float* dy, const float* x, const float* weight, const float* stats,
                       const float* residual, float* dx, float* dweight) {
    ORRERY_CHECK(residual == nullptr || shape.row_width() == shape.width,
                 "a residual needs rows without other columns");
    copy_other_columns(shape, dy, dx);
    for (std::int64_t row = 0; row < shape.rows; row += kRowBlock) {
        const NormShape block{std::min(kRowBlock, shape.rows - row), shape.width, shape.stride};
        const std::int64_t at = row * shape.row_width();
        rms_norm_parameter_gradient(block, dy + at, x + at, stats + row, dweight);
        rms_norm_input_gradient(block, dy + at, x + at, weight, stats + row,
                                residual != nullptr ? residual + at : nullptr, dx + at);
    }
}

ORRERY_VECTOR
void head_norm_forward(const HeadShape& shape, double epsilon, const float* qkv, const float* q_weight,
                       const float* k_weight, float* out, float* stats) {
    const std::int64_t normed = shape.heads + shape.kv_heads;
    const std::int64_t d = shape.head_dim;
    for (std::int64_t row = 0; row < shape.rows; ++row) {
        const float* in = qkv + row * shape.row_width();
        float* y = out + row * shape.row_width();
        for (std::int64_t head = 0; head < normed; ++head, in += d, y += d) {
            const float* weight = head < shape.heads ? q_weight : k_weight;
            const float inverse = inverse_root(mean_square(d, in), epsilon);
            stats[row * normed + head] = inverse;
            for (std::int64_t i = 0; i < d; ++i) y[i] = (in[i] * inverse) * weight[i];
        }
        copy(shape.kv_heads * d, in, y);
    }
}

ORRERY_VECTOR
void head_norm_backward(const HeadShape& shape, const float* dout, const float* qkv, const float* q_weight,
                        const float* k_weight, const float* stats, float* dqkv, float* dq_weight, float* dk_weight) {
    const std::int64_t normed = shape.heads + shape.kv_heads;
    const std::int64_t d = shape.head_dim;
    for (std::int64_t row = 0; row < shape.rows; ++row) {
        const float* dy = dout + row * shape.row_width();
        const float* in = qkv + row * shape.row_width();
        float* dx = dqkv + row * shape.row_width();
        for (std::int64_t head = 0; head < normed; ++head, dy += d, in += d, dx += d) {
            const bool is_query = head < shape.heads;
            rms_backward_row(d, dy, in, is_query ? q_weight : k_weight, stats[row * normed + head], nullptr, dx);
        }
        copy(shape.kv_heads * d, dy, dx);
    }
    // All heads share the weights, so their gradients are summed over rows and heads, in blocks of columns.
    for (std::int64_t begin = 0; begin < d; begin += kColumns) {
        const std::int64_t count = std::min(kColumns, d - begin);
        for (const bool is_query : {true, false}) {
            double sums[kColumns] = {};
            for (std::int64_t row = 0; row < shape.rows; ++row) {
                for (std::int64_t head = is_query ? 0 : shape.heads; head < (is_query ? shape.heads : normed); ++head) {
                    const float* dy = dout + row * shape.row_width() + head * d + begin;
                    const float* in = qkv + row * shape.row_width() + head * d + begin;
                    const float inverse = stats[row * normed + head];
                    for (std::int64_t i = 0; i < count; ++i) sums[i] += wide(dy[i] * (in[i] * inverse));
                }
            }
            float* target = is_query ? dq_weight : dk_weight;
            for (std::int64_t i = 0; i < count; ++i) target[begin + i] += static_cast<float>(sums[i]);
        }
    }
}

}  // namespace orrery::kernels
