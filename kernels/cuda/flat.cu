#include "kernels/cuda/flat.h"
#include "kernels/cuda/loops.cuh"

namespace orrery::kernels::cuda {
namespace {

/// A block sums kWarp columns; threadIdx.x is the column, threadIdx.y selects every kWarp-th row.
__global__ void bias_backward_kernel(std::int64_t rows, std::int64_t n, ConstFloatRows dy, Floats dbias) {
    __shared__ double sums[kWarp][kWarp + 1];
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.x;
    double sum = 0;
    if (column < n) {
        for (std::int64_t row = threadIdx.y; row < rows; row += kWarp) {
            sum += static_cast<double>(get(dy.data, row * dy.width + column));
        }
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= n) return;
    double total = 0;
    for (int y = 0; y < kWarp; ++y) total += sums[y][threadIdx.x];
    put(dbias, column, get(dbias, column) + static_cast<float>(total));
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
    for_each_of_rows(stream, rows, n, "set_bias", [=] __device__(std::int64_t row, std::int64_t column) {
        put(y.data, row * y.width + column, get(bias, column));
    });
}

void bias_backward(StreamHandle stream, std::int64_t rows, std::int64_t n, ConstFloatRows dy, Floats dbias) {
    launch(stream, blocks_for(n, kWarp), dim3(kWarp, kWarp), "bias_backward", bias_backward_kernel, rows, n, dy, dbias);
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
