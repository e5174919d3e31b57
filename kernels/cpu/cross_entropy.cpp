// Cross entropy in steps; a vocabulary-parallel run reduces over its ranks between them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/vector.h"
#include "kernels/kernels.h"

namespace orrery::kernels {

ORRERY_VECTOR
void cross_entropy_max(const VocabShard& shape, const float* logits, float* row_max) {
    for (std::int64_t row = 0; row < shape.rows; ++row) {
        row_max[row] = lane_max(shape.valid, logits + row * shape.n, -std::numeric_limits<float>::infinity());
    }
}

ORRERY_VECTOR
void cross_entropy_sum(const VocabShard& shape, const float* logits, const float* row_max, const std::int32_t* targets,
                       float* sums, float* exponentials) {
    for (std::int64_t row = 0; row < shape.rows; ++row) {
        const float* values = logits + row * shape.n;
        const float top = row_max[row];
        sums[row] = static_cast<float>(lane_sum<double>(
            shape.valid, [&](std::int64_t i) { return static_cast<double>(fast_exp(values[i] - top)); }));
        const std::int64_t column = targets[row] - shape.start;
        sums[shape.rows + row] = column >= 0 && column < shape.valid ? values[column] - top : 0.0F;
        if (exponentials == nullptr) continue;
        float* result = exponentials + row * shape.n;
        for (std::int64_t i = 0; i < shape.valid; ++i) result[i] = fast_exp(values[i] - top);
        for (std::int64_t i = shape.valid; i < shape.n; ++i) result[i] = 0.0F;
    }
}

void cross_entropy_loss(std::int64_t rows, const float* row_max, const float* sums, float* lse, double* loss) {
    double total = 0.0;
    for (std::int64_t row = 0; row < rows; ++row) {
        const double log_sum = std::log(static_cast<double>(sums[row]));
        total += log_sum - static_cast<double>(sums[rows + row]);
        lse[row] = static_cast<float>(static_cast<double>(row_max[row]) + log_sum);
    }
    *loss += total;
}

void cross_entropy_loss_of_parts(std::int64_t rows, std::int64_t parts, std::int64_t n, const float* row_max,
                                 const float* sums, const std::int32_t* targets, float* lse, double* loss) {
    double total = 0.0;
    for (std::int64_t row = 0; row < rows; ++row) {
        float top = row_max[row];
        for (std::int64_t part = 1; part < parts; ++part) top = std::max(top, row_max[part * rows + row]);
        double sum = 0.0;
        for (std::int64_t part = 0; part < parts; ++part) {
            const double above = static_cast<double>(row_max[part * rows + row]) - static_cast<double>(top);
            sum += static_cast<double>(sums[2 * part * rows + row]) * std::exp(above);
        }
        const std::int64_t owner = targets[row] / n;
        const double target = static_cast<double>(sums[(2 * owner + 1) * rows + row]) +
                              static_cast<double>(row_max[owner * rows + row]) - static_cast<double>(top);
        const double log_sum = std::log(sum);
        total += log_sum - target;
        lse[row] = static_cast<float>(static_cast<double>(top) + log_sum);
    }
    *loss += total;
}

ORRERY_VECTOR
void cross_entropy_backward(const VocabShard& shape, float scale, const float* lse, const std::int32_t* targets,
                            float* logits) {
    for (std::int64_t row = 0; row < shape.rows; ++row) {
        float* values = logits + row * shape.n;
        const float log_sum = lse[row];
        const std::int64_t column = targets[row] - shape.start;
        for (std::int64_t i = 0; i < shape.valid; ++i) values[i] = fast_exp(values[i] - log_sum) * scale;
        for (std::int64_t i = shape.valid; i < shape.n; ++i) values[i] = 0.0F;
        if (column >= 0 && column < shape.valid) values[column] -= scale;
    }
}

ORRERY_VECTOR
void cross_entropy_backward_of_exponentials(const VocabShard& shape, float scale, const float* row_max,
                                            const float* lse, const std::int32_t* targets, float* exponentials) {
    for (std::int64_t row = 0; row < shape.rows; ++row) {
        float* values = exponentials + row * shape.n;
        const float factor = std::exp(row_max[row] - lse[row]) * scale;
        const std::int64_t column = targets[row] - shape.start;
        for (std::int64_t i = 0; i < shape.n; ++i) values[i] *= factor;
        if (column >= 0 && column < shape.valid) values[column] -= scale;
    }
}

ORRERY_VECTOR
void cross_entropy_correct(const VocabShard& shape, std::int64_t width, float scale, const float* row_max,
                           const float* lse, const std::int32_t* targets, const float* weight, float* dx) {
    for (std::int64_t row = 0; row < shape.rows; ++row) {
        float* values = dx + row * width;
        const float factor = std::exp(row_max[row] - lse[row]) * scale;
        const std::int64_t column = targets[row] - shape.start;
        for (std::int64_t i = 0; i < width; ++i) values[i] *= factor;
        if (column < 0 || column >= shape.valid) continue;
        const float* target = weight + column * width;
        for (std::int64_t i = 0; i < width; ++i) values[i] -= scale * target[i];
    }
}

}  // namespace orrery::kernels
