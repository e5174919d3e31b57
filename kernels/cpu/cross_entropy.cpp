// Cross entropy in the pieces between which a vocabulary-parallel run reduces.
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
                       float* sums) {
    for (std::int64_t row = 0; row < shape.rows; ++row) {
        const float* values = logits + row * shape.n;
        const float top = row_max[row];
        sums[row] = static_cast<float>(lane_sum<double>(
            shape.valid, [&](std::int64_t i) { return static_cast<double>(fast_exp(values[i] - top)); }));
        const std::int64_t column = targets[row] - shape.start;
        sums[shape.rows + row] = column >= 0 && column < shape.valid ? values[column] - top : 0.0F;
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

}  // namespace orrery::kernels
