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

/// y = function(x) for each element.
template <typename Function>
void map_rows(StreamHandle stream, const RowCount& rows, std::int64_t n, const char* name, ConstFloats x, Floats y,
              Function function) {
    for_some_counted(stream, rows, n, rows_take_four(n, x, y), name,
                     [=] __device__(std::int64_t row, std::int64_t column, auto count) {
                         const std::int64_t i = row * n + column;
                         put_some(y, i, apply<count()>(function, get_some<count()>(x, i)));
                     });
}
/// dx = function(dy, x) for each element.
template <typename Function>
void map_rows(StreamHandle stream, const RowCount& rows, std::int64_t n, const char* name, ConstFloats dy,
              ConstFloats x, Floats dx, Function function) {
    for_some_counted(stream, rows, n, rows_take_four(n, dy, x, dx), name,
                     [=] __device__(std::int64_t row, std::int64_t column, auto count) {
                         const std::int64_t i = row * n + column;
                         put_some(dx, i, apply<count()>(function, get_some<count()>(dy, i), get_some<count()>(x, i)));
                     });
}

}  // namespace

void gelu_forward(StreamHandle stream, const RowCount& rows, std::int64_t n, ConstFloats x, Floats y) {
    map_rows(stream, rows, n, "gelu_forward", x, y,
             [] __device__(float value) { return value * logistic(value * (kLinear + kCubic * (value * value))); });
}

void gelu_backward(StreamHandle stream, const RowCount& rows, std::int64_t n, ConstFloats dy, ConstFloats x,
                   Floats dx) {
    map_rows(stream, rows, n, "gelu_backward", dy, x, dx, [] __device__(float gradient, float value) {
        const float square = value * value;
        const float inner = value * (kLinear + kCubic * square);
        return gradient * (logistic(inner) + value * logistic_slope(inner) * (kLinear + kCubic3 * square));
    });
}

void relu_forward(StreamHandle stream, const RowCount& rows, std::int64_t n, ConstFloats x, Floats y) {
    map_rows(stream, rows, n, "relu_forward", x, y, [] __device__(float value) { return value < 0.0F ? 0.0F : value; });
}

void relu_backward(StreamHandle stream, const RowCount& rows, std::int64_t n, ConstFloats dy, ConstFloats x,
                   Floats dx) {
    map_rows(stream, rows, n, "relu_backward", dy, x, dx,
             [] __device__(float gradient, float value) { return value > 0.0F ? gradient : 0.0F; });
}

void swiglu_forward(StreamHandle stream, const RowCount& rows, std::int64_t n, ConstFloats gate_up, Floats y) {
    for_some_counted(stream, rows, n, rows_take_four(n, gate_up, y), "swiglu_forward",
                     [=] __device__(std::int64_t row, std::int64_t column, auto count) {
                         const std::int64_t at = row * 2 * n + column;
                         put_some(y, row * n + column,
                                  apply<count()>([](float gate, float up) { return gate * logistic(gate) * up; },
                                                 get_some<count()>(gate_up, at), get_some<count()>(gate_up, at + n)));
                     });
}

void swiglu_backward(StreamHandle stream, const RowCount& rows, std::int64_t n, ConstFloats dy, ConstFloats gate_up,
                     Floats dgate_up) {
    for_some_counted(stream, rows, n, rows_take_four(n, dy, gate_up, dgate_up), "swiglu_backward",
                     [=] __device__(std::int64_t row, std::int64_t column, auto count) {
                         const std::int64_t at = row * 2 * n + column;
                         const auto gates = get_some<count()>(gate_up, at), ups = get_some<count()>(gate_up, at + n);
                         const auto gradients = get_some<count()>(dy, row * n + column);
                         const auto of_gate = [](float gradient, float gate, float up) {
                             return gradient * up * (logistic(gate) + gate * logistic_slope(gate));
                         };
                         const auto of_up = [](float gradient, float gate) {
                             return gradient * (gate * logistic(gate));
                         };
                         put_some(dgate_up, at, apply<count()>(of_gate, gradients, gates, ups));
                         put_some(dgate_up, at + n, apply<count()>(of_up, gradients, gates));
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
