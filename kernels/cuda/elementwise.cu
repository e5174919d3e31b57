// Embeddings, positions, rotation, residuals and columns.
#include "kernels/cuda/each.cuh"

namespace orrery::kernels::cuda {
namespace {

/// One block per row. The block of a token's first row adds up all rows of the token, in order.
__global__ void embedding_backward_kernel(EmbeddingShape shape, const float* dy, const std::int32_t* tokens,
                                          float* dweight) {
    const std::int64_t row = blockIdx.x;
    const std::int32_t token = tokens[row];
    const std::int64_t place = token - shape.vocab_start;
    if (place < 0 || place >= shape.vocab_rows) return;
    int seen = 0;
    for (std::int64_t r = threadIdx.x; r < row; r += blockDim.x) seen |= tokens[r] == token ? 1 : 0;
    if (__syncthreads_or(seen) != 0) return;
    for (std::int64_t column = threadIdx.x; column < shape.width; column += blockDim.x) {
        float sum = dweight[place * shape.width + column];
        for (std::int64_t r = row; r < shape.rows; ++r) {
            if (tokens[r] == token) sum += dy[r * shape.width + column];
        }
        dweight[place * shape.width + column] = sum;
    }
}

}  // namespace

void embedding_forward(StreamHandle stream, const EmbeddingShape& shape, const std::int32_t* tokens,
                       const float* weight, float* y) {
    for_each(stream, shape.rows * shape.width, "embedding_forward", [=] __device__(std::int64_t i) {
        const std::int64_t row = i / shape.width;
        const std::int64_t place = tokens[row] - shape.vocab_start;
        const bool here = place >= 0 && place < shape.vocab_rows;
        y[i] = here ? weight[place * shape.width + i % shape.width] : 0.0F;
    });
}

void embedding_backward(StreamHandle stream, const EmbeddingShape& shape, const float* dy, const std::int32_t* tokens,
                        float* dweight) {
    if (shape.rows == 0) return;
    launch(stream, static_cast<unsigned>(shape.rows), kThreads, "embedding_backward", embedding_backward_kernel, shape,
           dy, tokens, dweight);
}

void position_forward(StreamHandle stream, const PositionShape& shape, const float* x, const float* weight, float* y) {
    for_each(stream, shape.rows * shape.width, "position_forward", [=] __device__(std::int64_t i) {
        const std::int64_t position = shape.first_position + i / shape.width / shape.micro_batch;
        y[i] = x[i] + weight[position * shape.width + i % shape.width];
    });
}

void position_backward(StreamHandle stream, const PositionShape& shape, const float* dy, float* dweight) {
    const std::int64_t positions = shape.rows / shape.micro_batch;
    for_each(stream, positions * shape.width, "position_backward", [=] __device__(std::int64_t i) {
        const std::int64_t position = i / shape.width;
        const std::int64_t column = i % shape.width;
        const std::int64_t out = (shape.first_position + position) * shape.width + column;
        float sum = dweight[out];
        for (std::int64_t sample = 0; sample < shape.micro_batch; ++sample) {
            sum += dy[(position * shape.micro_batch + sample) * shape.width + column];
        }
        dweight[out] = sum;
    });
}

void rotate(StreamHandle stream, const HeadShape& shape, std::int64_t micro_batch, std::int64_t first_position,
            const float* cosines, const float* sines, bool inverse, float* qkv) {
    const std::int64_t half = shape.head_dim / 2;
    const std::int64_t pairs = (shape.heads + shape.kv_heads) * half;  // of a row: q and k
    const std::int64_t width = shape.row_width();
    const std::int64_t head_dim = shape.head_dim;
    for_each(stream, shape.rows * pairs, "rotate", [=] __device__(std::int64_t i) {
        const std::int64_t row = i / pairs;
        const std::int64_t head = i % pairs / half;
        const std::int64_t pair = i % half;
        const std::int64_t entry = (first_position + row / micro_batch) * half + pair;
        float* first = qkv + row * width + head * head_dim + pair;
        const float cosine = cosines[entry];
        const float sine = inverse ? -sines[entry] : sines[entry];
        const float a = first[0];
        const float b = first[half];
        first[0] = a * cosine - b * sine;
        first[half] = b * cosine + a * sine;
    });
}

void residual_add(StreamHandle stream, std::int64_t rows, std::int64_t width, const float* a, const float* b,
                  const float* bias, float* y) {
    for_each(stream, rows * width, "residual_add",
             [=] __device__(std::int64_t i) { y[i] = a[i] + b[i] + (bias == nullptr ? 0.0F : bias[i % width]); });
}

void copy_columns(StreamHandle stream, std::int64_t rows, std::int64_t n, ConstRows x, Rows y) {
    for_each(stream, rows * n, "copy_columns",
             [=] __device__(std::int64_t i) { y.data[i / n * y.width + i % n] = x.data[i / n * x.width + i % n]; });
}

void add_columns(StreamHandle stream, std::int64_t rows, std::int64_t n, ConstRows x, Rows y) {
    for_each(stream, rows * n, "add_columns",
             [=] __device__(std::int64_t i) { y.data[i / n * y.width + i % n] += x.data[i / n * x.width + i % n]; });
}

}  // namespace orrery::kernels::cuda
