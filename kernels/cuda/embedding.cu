// Token and position embeddings.
#include "kernels/cuda/each.cuh"

namespace orrery::kernels::cuda {
namespace {

/// One block per row. The block of a token's first row adds up all rows of the token, in order.
__global__ void embedding_backward_kernel(EmbeddingShape shape, ConstFloats dy, const std::int32_t* tokens,
                                          Floats dweight) {
    const std::int64_t row = blockIdx.x;
    const std::int32_t token = tokens[row];
    const std::int64_t place = token - shape.vocab_start;
    if (place < 0 || place >= shape.vocab_rows) return;
    int seen = 0;
    for (std::int64_t r = threadIdx.x; r < row; r += blockDim.x) seen |= tokens[r] == token ? 1 : 0;
    if (__syncthreads_or(seen) != 0) return;
    for (std::int64_t column = threadIdx.x; column < shape.width; column += blockDim.x) {
        float sum = get(dweight, place * shape.width + column);
        for (std::int64_t r = row; r < shape.rows; ++r) {
            if (tokens[r] == token) sum += get(dy, r * shape.width + column);
        }
        put(dweight, place * shape.width + column, sum);
    }
}

}  // namespace

void embedding_forward(StreamHandle stream, const EmbeddingShape& shape, const std::int32_t* tokens, ConstFloats weight,
                       Floats y) {
    for_each_of_rows(stream, shape.rows, shape.width, "embedding_forward",
                     [=] __device__(std::int64_t row, std::int64_t column) {
                         const std::int64_t place = tokens[row] - shape.vocab_start;
                         const bool here = place >= 0 && place < shape.vocab_rows;
                         put(y, row * shape.width + column, here ? get(weight, place * shape.width + column) : 0.0F);
                     });
}

void embedding_backward(StreamHandle stream, const EmbeddingShape& shape, ConstFloats dy, const std::int32_t* tokens,
                        Floats dweight) {
    launch(stream, static_cast<unsigned>(shape.rows), kThreads, "embedding_backward", embedding_backward_kernel, shape,
           dy, tokens, dweight);
}

void position_forward(StreamHandle stream, const PositionShape& shape, ConstFloats x, ConstFloats weight, Floats y) {
    for_each_of_rows(stream, shape.rows, shape.width, "position_forward",
                     [=] __device__(std::int64_t row, std::int64_t column) {
                         const std::int64_t position = shape.first_position + position_index(row, shape.micro_batch);
                         const std::int64_t i = row * shape.width + column;
                         put(y, i, get(x, i) + get(weight, position * shape.width + column));
                     });
}

void position_backward(StreamHandle stream, const PositionShape& shape, ConstFloats dy, Floats dweight) {
    for_each_of_rows(stream, shape.rows / shape.micro_batch, shape.width, "position_backward",
                     [=] __device__(std::int64_t position, std::int64_t column) {
                         const std::int64_t out = (shape.first_position + position) * shape.width + column;
                         float sum = get(dweight, out);
                         for (std::int64_t sample = 0; sample < shape.micro_batch; ++sample) {
                             sum += get(dy, (position * shape.micro_batch + sample) * shape.width + column);
                         }
                         put(dweight, out, sum);
                     });
}

}  // namespace orrery::kernels::cuda
