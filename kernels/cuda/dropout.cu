// Residual sums, and dropout with masks that are made and stored, or read.
#include "kernels/cuda/dropout.cuh"
#include "kernels/cuda/dropout.h"
#include "kernels/cuda/loops.cuh"
#include "kernels/cuda/positions.h"

namespace orrery::kernels::cuda {
namespace {

__device__ float get_or_zero(ConstFloats x, std::int64_t i) {
    return x.present() ? get(x, i) : 0.0F;
}

struct Summands {
    ConstFloats a, b, bias, second_bias;
};

/// One block per row, so that a thread derives the row's key once.
__global__ void residual_add_dropout_kernel(PositionRuns positions, std::int64_t width, Masks masks,
                                            std::int64_t micro_batch, Summands x, Floats y, std::uint8_t* mask) {
    const std::int64_t row = blockIdx.x;
    const std::int64_t index = position_index(row, micro_batch);
    const RowMask keep(masks.key, masks.first_sample + row - index * micro_batch, positions.position(index),
                       masks.threshold);
    for (std::int64_t column = threadIdx.x; column < width; column += kThreads) {
        const std::int64_t i = row * width + column;
        const bool kept = keep.keeps(static_cast<std::uint32_t>(column));
        const float biases = get_or_zero(x.bias, column) + get_or_zero(x.second_bias, column);
        put(y, i, get_or_zero(x.a, i) + (kept ? (get(x.b, i) + biases) * masks.scale : 0.0F));
        mask[i] = kept ? 1 : 0;
    }
}

}  // namespace

void residual_add(StreamHandle stream, std::int64_t rows, std::int64_t width, ConstFloats a, ConstFloats b,
                  ConstFloats bias, ConstFloats second_bias, Floats y) {
    for_some_of_rows(stream, rows, width, rows_take_four(width, a, b, bias, second_bias, y), "residual_add",
                     [=] __device__(std::int64_t row, std::int64_t column, auto count) {
                         const std::int64_t i = row * width + column;
                         const auto sum = [](float x, float z, float first, float second) {
                             return x + z + first + second;
                         };
                         put_some(y, i,
                                  apply<count()>(sum, get_some<count()>(a, i), get_some<count()>(b, i),
                                                 get_some_or_zero<count()>(bias, column),
                                                 get_some_or_zero<count()>(second_bias, column)));
                     });
}

void residual_add_dropout(StreamHandle stream, const DropoutRows& rows, ConstFloats a, ConstFloats b, ConstFloats bias,
                          ConstFloats second_bias, Floats y, std::uint8_t* mask) {
    const PositionRuns positions(rows.positions);
    const auto micro_batch = static_cast<std::int64_t>(rows.dropout.samples.size());
    launch(stream, static_cast<unsigned>(positions.positions() * micro_batch), kThreads, "residual_add_dropout",
           residual_add_dropout_kernel, positions, rows.width, Masks(rows.dropout, micro_batch), micro_batch,
           Summands{a, b, bias, second_bias}, y, mask);
}

void dropout_backward(StreamHandle stream, std::int64_t elements, double probability, ConstFloats dy,
                      const std::uint8_t* mask, Floats dx) {
    const float scale = Dropout{.probability = probability, .samples = {}}.scale();
    for_each(stream, elements, "dropout_backward",
             [=] __device__(std::int64_t i) { put(dx, i, mask[i] != 0 ? get(dy, i) * scale : 0.0F); });
}

}  // namespace orrery::kernels::cuda
