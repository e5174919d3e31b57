#include <cmath>

#include "kernels/cuda/activations.h"
#include "kernels/cuda/loops.cuh"

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

/// One block per row.
__global__ void sigmoid_scale_backward_kernel(std::int64_t n, ConstFloats dy, ConstFloats x, ConstFloats logits,
                                              Floats dx, Floats dlogits) {
    __shared__ double shared[kThreads / kWarp];
    const std::int64_t row = blockIdx.x;
    const float logit = get(logits, row);
    const float factor = logistic(logit);
    double dot = 0;
    for (std::int64_t i = row * n + threadIdx.x; i < (row + 1) * n; i += kThreads) {
        const float gradient = get(dy, i);
        dot += static_cast<double>(gradient) * static_cast<double>(get(x, i));
        put(dx, i, gradient * factor);
    }
    dot = block_sum(dot, shared);
    if (threadIdx.x == 0) put(dlogits, row, static_cast<float>(dot * static_cast<double>(logistic_slope(logit))));
}

}  // namespace

void gelu_forward(StreamHandle stream, const RowCount& rows, std::int64_t n, ConstFloats x, Floats y) {
    for_each_counted(stream, rows, n, "gelu_forward", [=] __device__(std::int64_t row, std::int64_t column) {
        const float value = get(x, row * n + column);
        put(y, row * n + column, value * logistic(value * (kLinear + kCubic * (value * value))));
    });
}

void gelu_backward(StreamHandle stream, const RowCount& rows, std::int64_t n, ConstFloats dy, ConstFloats x,
                   Floats dx) {
    for_each_counted(stream, rows, n, "gelu_backward", [=] __device__(std::int64_t row, std::int64_t column) {
        const std::int64_t i = row * n + column;
        const float value = get(x, i);
        const float square = value * value;
        const float inner = value * (kLinear + kCubic * square);
        const float slope = logistic(inner) + value * logistic_slope(inner) * (kLinear + kCubic3 * square);
        put(dx, i, get(dy, i) * slope);
    });
}

void relu_forward(StreamHandle stream, const RowCount& rows, std::int64_t n, ConstFloats x, Floats y) {
    for_each_counted(stream, rows, n, "relu_forward", [=] __device__(std::int64_t row, std::int64_t column) {
        const float value = get(x, row * n + column);
        put(y, row * n + column, value < 0.0F ? 0.0F : value);
    });
}

void relu_backward(StreamHandle stream, const RowCount& rows, std::int64_t n, ConstFloats dy, ConstFloats x,
                   Floats dx) {
    for_each_counted(stream, rows, n, "relu_backward", [=] __device__(std::int64_t row, std::int64_t column) {
        const std::int64_t i = row * n + column;
        put(dx, i, get(x, i) > 0.0F ? get(dy, i) : 0.0F);
    });
}

void swiglu_forward(StreamHandle stream, const RowCount& rows, std::int64_t n, ConstFloats gate_up, Floats y) {
    for_each_counted(stream, rows, n, "swiglu_forward", [=] __device__(std::int64_t row, std::int64_t column) {
        const std::int64_t at = row * 2 * n + column;
        const float gate = get(gate_up, at);
        put(y, row * n + column, gate * logistic(gate) * get(gate_up, at + n));
    });
}

void swiglu_backward(StreamHandle stream, const RowCount& rows, std::int64_t n, ConstFloats dy, ConstFloats gate_up,
                     Floats dgate_up) {
    for_each_counted(stream, rows, n, "swiglu_backward", [=] __device__(std::int64_t row, std::int64_t column) {
        const std::int64_t at = row * 2 * n + column;
        const float gate = get(gate_up, at);
        const float up = get(gate_up, at + n);
        const float gradient = get(dy, row * n + column);
        const float share = logistic(gate);
        put(dgate_up, at, gradient * up * (share + gate * logistic_slope(gate)));
        put(dgate_up, at + n, gradient * (gate * share));
    });
}

void sigmoid_scale_forward(StreamHandle stream, std::int64_t rows, std::int64_t n, ConstFloats x, ConstFloats logits,
                           Floats y) {
    for_each_of_rows(stream, rows, n, "sigmoid_scale_forward", [=] __device__(std::int64_t row, std::int64_t column) {
        put(y, row * n + column, get(x, row * n + column) * logistic(get(logits, row)));
    });
}

void sigmoid_scale_backward(StreamHandle stream, std::int64_t rows, std::int64_t n, ConstFloats dy, ConstFloats x,
                            ConstFloats logits, Floats dx, Floats dlogits) {
    launch(stream, static_cast<unsigned>(rows), kThreads, "sigmoid_scale_backward", sigmoid_scale_backward_kernel, n,
           dy, x, logits, dx, dlogits);
}

}  // namespace orrery::kernels::cuda
