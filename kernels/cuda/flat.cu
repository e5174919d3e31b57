#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/flat.h"
#include "kernels/cuda/loops.cuh"

namespace orrery::kernels::cuda {
namespace {

template <int kColumns>
__global__ void bias_backward_kernel(std::int64_t rows, std::int64_t n, ConstFloatRows dy, Floats dbias) {
    using Block = ColumnBlock<kColumns>;
    __shared__ Block block;
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumns + threadIdx.x;
    double sum = 0;
    if (column < n) {
        for (std::int64_t row = threadIdx.y; row < rows; row += blockDim.y) {
            sum += static_cast<double>(get(dy.data, row * dy.width + column));
        }
    }
    const double total = block.total(sum);
    if (!block.has_column() || block.lane() != 0 || block.column() >= n) return;
    put(dbias, block.column(), get(dbias, block.column()) + static_cast<float>(total));
}

/// y[i] = f(x[i], y[i]) with four elements per thread.
template <typename Function>
void combine_flat(StreamHandle stream, std::int64_t elements, const char* name, ConstFloats x, Floats y,
                  Function function) {
    const bool in_fours = takes_four(x) && takes_four(y);
    for_each(stream, (elements + 3) / 4, name, [=] __device__(std::int64_t quarter) {
        const std::int64_t first = 4 * quarter;
        if (in_fours && first + 4 <= elements) {
            return put4(y, first, function.four(get4(x, first), y, first));
        }
        for (std::int64_t i = first; i < first + 4 && i < elements; ++i) put(y, i, function.one(get(x, i), y, i));
    });
}

struct Assign {
    __device__ static float one(float x, ConstFloats, std::int64_t) { return x; }
    __device__ static Four four(const Four& x, ConstFloats, std::int64_t) { return x; }
};

struct Add {
    __device__ static float one(float x, ConstFloats y, std::int64_t i) { return get(y, i) + x; }
    __device__ static Four four(const Four& x, ConstFloats y, std::int64_t i) {
        Four sum = get4(y, i);
#pragma unroll
        for (int j = 0; j < 4; ++j) sum.value[j] += x.value[j];
        return sum;
    }
};

}  // namespace

void set_bias(StreamHandle stream, std::int64_t rows, std::int64_t n, ConstFloats bias, FloatRows y) {
    for_some_of_rows(stream, rows, n, rows_take_four(n, bias, y.data) && y.width % 4 == 0, "set_bias",
                     [=] __device__(std::int64_t row, std::int64_t column, auto count) {
                         put_some(y.data, row * y.width + column, get_some<count()>(bias, column));
                     });
}

void bias_backward(StreamHandle stream, std::int64_t rows, std::int64_t n, ConstFloatRows dy, Floats dbias) {
    with_columns(n, [&](auto columns) {
        launch(stream, blocks_for(n, columns()), ColumnBlock<columns()>::threads_for(rows), "bias_backward",
               bias_backward_kernel<columns()>, rows, n, dy, dbias);
    });
}

void cut(StreamHandle stream, std::int64_t rows, std::int64_t n, ConstFloatRows x, Floats high, Floats low) {
    for_each_of_rows(stream, rows, n, "cut", [=] __device__(std::int64_t row, std::int64_t column) {
        const float value = get(x.data, row * x.width + column);
        put(high, row * n + column, value);
        const float rounded = __bfloat162float(__float2bfloat16_rn(value));
        if (low.present()) put(low, row * n + column, value - rounded);
    });
}

void add(StreamHandle stream, std::int64_t elements, ConstFloats b, Floats a) {
    combine_flat(stream, elements, "add", b, a, Add{});
}

void cast(StreamHandle stream, std::int64_t elements, ConstFloats x, Floats y) {
    combine_flat(stream, elements, "cast", x, y, Assign{});
}

}  // namespace orrery::kernels::cuda
