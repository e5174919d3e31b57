// Activations, biases and flat vectors.
#include "kernels/cuda/each.cuh"

namespace orrery::kernels::cuda {
namespace {

constexpr float kLinear = 1.5957691216057308F;   // 2 sqrt(2/pi)
constexpr float kCubic = 0.07135481627159556F;   // 2 sqrt(2/pi) * 0.044715
constexpr float kCubic3 = 0.21406444881478667F;  // 3 kCubic, for the derivative

__device__ float logistic(float x) {
    return 1.0F / (1.0F + expf(-x));
}

/// The logistic function's slope s (1 - s), without the cancellation in 1 - s.
__device__ float logistic_slope(float x) {
    const float e = expf(-fabsf(x));
    const float r = 1.0F / (1.0F + e);
    return e * r * r;
}

/// A block sums kWarp columns; threadIdx.x is the column, threadIdx.y selects every kWarp-th row.
__global__ void bias_backward_kernel(std::int64_t rows, std::int64_t n, const float* dy, float* dbias) {
    __shared__ double sums[kWarp][kWarp + 1];
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.x;
    double sum = 0;
    if (column < n) {
        for (std::int64_t row = threadIdx.y; row < rows; row += kWarp) sum += static_cast<double>(dy[row * n + column]);
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= n) return;
    double total = 0;
    for (int y = 0; y < kWarp; ++y) total += sums[y][threadIdx.x];
    dbias[column] += static_cast<float>(total);
}

}  // namespace

void gelu_forward(StreamHandle stream, std::int64_t elements, const float* x, float* y) {
    for_each(stream, elements, "gelu_forward", [=] __device__(std::int64_t i) {
        const float value = x[i];
        y[i] = value * logistic(value * (kLinear + kCubic * (value * value)));
    });
}

void gelu_backward(StreamHandle stream, std::int64_t elements, const float* dy, const float* x, float* dx) {
    for_each(stream, elements, "gelu_backward", [=] __device__(std::int64_t i) {
        const float value = x[i];
        const float square = value * value;
        const float inner = value * (kLinear + kCubic * square);
        dx[i] = dy[i] * (logistic(inner) + value * logistic_slope(inner) * (kLinear + kCubic3 * square));
    });
}

void swiglu_forward(StreamHandle stream, std::int64_t rows, std::int64_t n, const float* gate_up, float* y) {
    for_each(stream, rows * n, "swiglu_forward", [=] __device__(std::int64_t i) {
        const std::int64_t at = i / n * 2 * n + i % n;
        const float gate = gate_up[at];
        y[i] = gate * logistic(gate) * gate_up[at + n];
    });
}

void swiglu_backward(StreamHandle stream, std::int64_t rows, std::int64_t n, const float* dy, const float* gate_up,
                     float* dgate_up) {
    for_each(stream, rows * n, "swiglu_backward", [=] __device__(std::int64_t i) {
        const std::int64_t at = i / n * 2 * n + i % n;
        const float gate = gate_up[at];
        const float up = gate_up[at + n];
        const float share = logistic(gate);
        dgate_up[at] = dy[i] * up * (share + gate * logistic_slope(gate));
        dgate_up[at + n] = dy[i] * gate * share;
    });
}

void set_bias(StreamHandle stream, std::int64_t rows, std::int64_t n, const float* bias, float* y) {
    for_each(stream, rows * n, "set_bias", [=] __device__(std::int64_t i) { y[i] = bias[i % n]; });
}

void bias_backward(StreamHandle stream, std::int64_t rows, std::int64_t n, const float* dy, float* dbias) {
    launch(stream, blocks_for(n, kWarp), dim3(kWarp, kWarp), "bias_backward", bias_backward_kernel, rows, n, dy, dbias);
}

void add(StreamHandle stream, std::int64_t elements, const float* b, float* a) {
    for_each(stream, elements, "add", [=] __device__(std::int64_t i) { a[i] += b[i]; });
}

}  // namespace orrery::kernels::cuda
