// Token and position embeddings.
#include <algorithm>

#include "kernels/cuda/loops.cuh"
#include "kernels/cuda/sort_rows.h"

namespace orrery::kernels::cuda {
namespace {

constexpr int kColumnThreads = 64;  // of a block: few, so that a token with many rows has many blocks

/// A block for each sorted row and some columns; the blocks of a token's first row add up all its rows. They are added
/// one after the other, as on the CPU: a column of a token, however many rows it has, is one sum of one thread. That
/// thread reads kAhead rows at a time, since it would otherwise wait for memory at each row.
template <int kOwn>
__global__ void embedding_backward_kernel(EmbeddingShape shape, ConstFloats dy, const SortedRow* sorted,
                                          Floats dweight) {
    constexpr int kAhead = 8;
    const std::int64_t begin = blockIdx.x;
    const std::int32_t place = sorted[begin].place;
    if (place >= shape.vocab_rows || (begin > 0 && sorted[begin - 1].place == place)) return;
    const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * kColumnThreads + threadIdx.x) * kOwn;
    if (column >= shape.width) return;
    Some<kOwn> sum = get_some<kOwn>(dweight, place * shape.width + column);
    bool goes_on = true;
    for (std::int64_t first = begin; goes_on; first += kAhead) {
        std::int32_t rows[kAhead];  // -1: another token's
        Some<kOwn> gradients[kAhead];
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
            const SortedRow next = sorted[std::min(first + i, shape.rows - 1)];
            rows[i] = first + i < shape.rows && next.place == place ? next.row : -1;
        }
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
            if (rows[i] >= 0) gradients[i] = get_some<kOwn>(dy, rows[i] * shape.width + column);
        }
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
            if (rows[i] >= 0) sum = apply<kOwn>([](float a, float b) { return a + b; }, sum, gradients[i]);
        }
        goes_on = rows[kAhead - 1] >= 0;
    }
    put_some(dweight, place * shape.width + column, sum);
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
                        Floats dweight, void* scratch) {
    const SortedRow* const sorted = sort_rows(stream, shape.rows, tokens, shape.vocab_start, shape.vocab_rows, scratch);
    const bool in_fours = rows_take_four(shape.width, dy, dweight);
    const dim3 grid(static_cast<unsigned>(shape.rows),
                    blocks_for(shape.width, in_fours ? 4 * kColumnThreads : kColumnThreads));
    launch(stream, grid, kColumnThreads, "embedding_backward",
           in_fours ? embedding_backward_kernel<4> : embedding_backward_kernel<1>, shape, dy, sorted, dweight);
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
