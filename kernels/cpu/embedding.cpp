// Token and position embeddings.
#include "kernels/kernels.h"

namespace orrery::kernels {

void embedding_forward(const EmbeddingShape& shape, const std::int32_t* tokens, const float* weight, float* y) {
    for (std::int64_t row = 0; row < shape.rows; ++row) {
        const std::int64_t local = tokens[row] - shape.vocab_start;
        if (local >= 0 && local < shape.vocab_rows) {
            copy(shape.width, weight + local * shape.width, y + row * shape.width);
        } else {
            fill(shape.width, 0.0F, y + row * shape.width);
        }
    }
}

void embedding_backward(const EmbeddingShape& shape, const float* dy, const std::int32_t* tokens, float* dweight) {
    for (std::int64_t row = 0; row < shape.rows; ++row) {
        const std::int64_t local = tokens[row] - shape.vocab_start;
        if (local < 0 || local >= shape.vocab_rows) continue;
        add(shape.width, dy + row * shape.width, dweight + local * shape.width);
    }
}

void position_forward(const PositionShape& shape, const float* x, const float* weight, float* y) {
    for (std::int64_t row = 0; row < shape.rows; ++row) {
        const std::int64_t position = shape.first_position + row / shape.micro_batch;
        const std::int64_t at = row * shape.width;
        residual_add(1, shape.width, x + at, weight + position * shape.width, nullptr, y + at);
    }
}

void position_backward(const PositionShape& shape, const float* dy, float* dweight) {
    for (std::int64_t row = 0; row < shape.rows; ++row) {
        const std::int64_t position = shape.first_position + row / shape.micro_batch;
        add(shape.width, dy + row * shape.width, dweight + position * shape.width);
    }
}

}  // namespace orrery::kernels
