// Token and position embeddings.
#include "kernels/cuda/loops.cuh"

namespace orrery::kernels::cuda {
namespace {

/// sum += x[i …]
template <int kOwn>
__device__ void add_own(ConstFloats x, std::int64_t i, Some<kOwn>& sum) {
    sum = apply<kOwn>([](float a, float b) { return a + b; }, sum, get_some<kOwn>(x, i));
}

/// The blocks of a token's first row add up all rows of the token, in order; blockIdx.y is the place among the columns.
/// Each block looks for the rows once, and then adds them without reading tokens again.
template <int kOwn>
__global__ void embedding_backward_kernel(EmbeddingShape shape, ConstFloats dy, const std::int32_t* tokens,
                                          Floats dweight) {
    __shared__ int found[kThreads];  // the token's rows among kThreads rows, in order
    __shared__ int in_warp[kThreads / kWarp];
    const unsigned warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    const std::int64_t row = blockIdx.x;
    const std::int32_t token = tokens[row];
    const std::int64_t place = token - shape.vocab_start;
    if (place < 0 || place >= shape.vocab_rows) return;
    int seen = 0;
    for (std::int64_t r = threadIdx.x; r < row; r += kThreads) seen |= tokens[r] == token ? 1 : 0;
    if (__syncthreads_or(seen) != 0) return;
    const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kOwn;
    const bool is_column = column < shape.width;
    Some<kOwn> sum{};
    if (is_column) add_own(dweight, place * shape.width + column, sum);
    for (std::int64_t first = row; first < shape.rows; first += kThreads) {
        const std::int64_t r = first + threadIdx.x;
        const bool is_token = r < shape.rows && tokens[r] == token;
        const unsigned lanes = __ballot_sync(kAllLanes, is_token ? 1 : 0);
        if (lane == 0) in_warp[warp] = __popc(lanes);
        __syncthreads();
        int count = 0, before = __popc(lanes & ((1U << lane) - 1));
        for (unsigned w = 0; w < kThreads / kWarp; ++w) {
            if (w < warp) before += in_warp[w];
            count += in_warp[w];
        }
        if (is_token) found[before] = static_cast<int>(threadIdx.x);
        __syncthreads();
        if (!is_column) continue;
        for (int i = 0; i < count; ++i) add_own(dy, (first + found[i]) * shape.width + column, sum);
    }
    if (is_column) put_some(dweight, place * shape.width + column, sum);
}

}  // namespace

void embedding_forward(StreamHandle stream, const EmbeddingShape& shape, const std::int32_t* tokens, ConstFloats weight,
                       Floats y) {
    for_some_of_rows(stream, shape.rows, shape.width, rows_take_four(shape.width, weight, y), "embedding_forward",
                     [=] __device__(std::int64_t row, std::int64_t column, auto count) {
                         const std::int64_t place = tokens[row] - shape.vocab_start;
                         const bool here = place >= 0 && place < shape.vocab_rows;
                         put_some(y, row * shape.width + column,
                                  here ? get_some<count()>(weight, place * shape.width + column) : Some<count()>{});
                     });
}

void embedding_backward(StreamHandle stream, const EmbeddingShape& shape, ConstFloats dy, const std::int32_t* tokens,
                        Floats dweight) {
    const bool in_fours = rows_take_four(shape.width, dy, dweight);
    const dim3 grid(static_cast<unsigned>(shape.rows), blocks_for(shape.width, in_fours ? 4 * kThreads : kThreads));
    launch(stream, grid, kThreads, "embedding_backward",
           in_fours ? embedding_backward_kernel<4> : embedding_backward_kernel<1>, shape, dy, tokens, dweight);
}

void position_forward(StreamHandle stream, const PositionShape& shape, ConstFloats x, ConstFloats weight, Floats y) {
    for_some_of_rows(stream, shape.rows, shape.width, rows_take_four(shape.width, x, weight, y), "position_forward",
                     [=] __device__(std::int64_t row, std::int64_t column, auto count) {
                         const std::int64_t position = shape.first_position + position_index(row, shape.micro_batch);
                         const std::int64_t i = row * shape.width + column;
                         put_some(y, i,
                                  apply<count()>([](float a, float b) { return a + b; }, get_some<count()>(x, i),
                                                 get_some<count()>(weight, position * shape.width + column)));
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
