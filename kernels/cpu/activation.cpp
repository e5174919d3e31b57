// GELU (tanh form), SwiGLU fused and in steps, ReLU, and gates. Most use the logistic function: 0.5 (1 + tanh(u)) =
// 1 / (1 + exp(-2u)).
#include "kernels/cpu/vector.h"
#include "kernels/kernels.h"

namespace orrery::kernels {
namespace {

constexpr float kLinear = 1.5957691216057308F;   // 2 sqrt(2/pi)
constexpr float kCubic = 0.07135481627159556F;   // 2 sqrt(2/pi) * 0.044715
constexpr float kCubic3 = 0.21406444881478667F;  // 3 kCubic, for the derivative

ORRERY_INLINE float logistic(float x) {
    return 1.0F / (1.0F + fast_exp(-x));
}

/// The logistic function and its slope s (1 - s), without the cancellation in 1 - s.
struct Logistic {
    float value;
    float slope;
};
ORRERY_INLINE Logistic logistic_and_slope(float x) {
    const float e = fast_exp(x < 0.0F ? x : -x);
    const float r = 1.0F / (1.0F + e);
    return {x < 0.0F ? e * r : r, e * r * r};
}

}  // namespace

ORRERY_VECTOR
void exponential(std::int64_t elements, const float* x, float* y) {
    ORRERY_INDEPENDENT
    for (std::int64_t i = 0; i < elements; ++i) y[i] = fast_exp(x[i]);
}

ORRERY_VECTOR
void gelu_forward(std::int64_t elements, const float* x, float* y) {
    ORRERY_INDEPENDENT
    for (std::int64_t i = 0; i < elements; ++i) {
        const float value = x[i];
        y[i] = value * logistic(value * (kLinear + kCubic * (value * value)));
    }
}

ORRERY_VECTOR
void gelu_backward(std::int64_t elements, const float* dy, const float* x, float* dx) {
    ORRERY_INDEPENDENT
    for (std::int64_t i = 0; i < elements; ++i) {
        const float value = x[i];
        const float square = value * value;
        const Logistic s = logistic_and_slope(value * (kLinear + kCubic * square));
        dx[i] = dy[i] * (s.value + value * s.slope * (kLinear + kCubic3 * square));
    }
}

ORRERY_VECTOR
void swiglu_forward(std::int64_t rows, std::int64_t n, const float* gate_up, float* y) {
    for (std::int64_t row = 0; row < rows; ++row) {
        const float* gate = gate_up + row * 2 * n;
        const float* up = gate + n;
        float* out = y + row * n;
        ORRERY_INDEPENDENT
        for (std::int64_t i = 0; i < n; ++i) out[i] = gate[i] * logistic(gate[i]) * up[i];
    }
}

ORRERY_VECTOR
void swiglu_backward(std::int64_t rows, std::int64_t n, const float* dy, const float* gate_up, float* dgate_up) {
    for (std::int64_t row = 0; row < rows; ++row) {
        const float* gate = gate_up + row * 2 * n;
        const float* up = gate + n;
        const float* d = dy + row * n;
        float* dgate = dgate_up + row * 2 * n;
        float* dup = dgate + n;
        ORRERY_INDEPENDENT
        for (std::int64_t i = 0; i < n; ++i) {
            const float g = gate[i];
            const float u = up[i];
            const Logistic s = logistic_and_slope(g);
            dgate[i] = d[i] * u * (s.value + g * s.slope);
            dup[i] = d[i] * (g * s.value);
        }
    }
}

ORRERY_VECTOR
void relu_forward(std::int64_t elements, const float* x, float* y) {
    ORRERY_INDEPENDENT
    for (std::int64_t i = 0; i < elements; ++i) y[i] = x[i] < 0.0F ? 0.0F : x[i];
}

ORRERY_VECTOR
void relu_backward(std::int64_t elements, const float* dy, const float* x, float* dx) {
    ORRERY_INDEPENDENT
    for (std::int64_t i = 0; i < elements; ++i) dx[i] = x[i] > 0.0F ? dy[i] : 0.0F;
}

ORRERY_VECTOR
void silu_forward(std::int64_t rows, std::int64_t n, ConstRows x, Rows y) {
    for (std::int64_t row = 0; row < rows; ++row) {
        const float* in = x.data + row * x.width;
        float* out = y.data + row * y.width;
        ORRERY_INDEPENDENT
        for (std::int64_t i = 0; i < n; ++i) out[i] = in[i] * logistic(in[i]);
    }
}

ORRERY_VECTOR
void silu_backward(std::int64_t rows, std::int64_t n, ConstRows dy, ConstRows x, Rows dx) {
    for (std::int64_t row = 0; row < rows; ++row) {
        const float* d = dy.data + row * dy.width;
        const float* in = x.data + row * x.width;
        float* out = dx.data + row * dx.width;
        ORRERY_INDEPENDENT
        for (std::int64_t i = 0; i < n; ++i) {
            const float value = in[i];
            const Logistic s = logistic_and_slope(value);
            out[i] = d[i] * (s.value + value * s.slope);
        }
    }
}

ORRERY_VECTOR
void multiply_forward(std::int64_t rows, std::int64_t n, ConstRows a, ConstRows b, Rows y) {
    for (std::int64_t row = 0; row < rows; ++row) {
        const float* first = a.data + row * a.width;
        const float* second = b.data + row * b.width;
        float* out = y.data + row * y.width;
        ORRERY_INDEPENDENT
        for (std::int64_t i = 0; i < n; ++i) out[i] = first[i] * second[i];
    }
}

ORRERY_VECTOR
void multiply_backward(std::int64_t rows, std::int64_t n, ConstRows dy, ConstRows a, ConstRows b, Rows da, Rows db) {
    for (std::int64_t row = 0; row < rows; ++row) {
        const float* d = dy.data + row * dy.width;
        const float* first = a.data + row * a.width;
        const float* second = b.data + row * b.width;
        float* dfirst = da.data + row * da.width;
        float* dsecond = db.data + row * db.width;
        ORRERY_INDEPENDENT
        for (std::int64_t i = 0; i < n; ++i) {
            const float of_first = d[i] * second[i];
            const float of_second = d[i] * first[i];
            dfirst[i] = of_first;
            dsecond[i] = of_second;
        }
    }
}

ORRERY_VECTOR
void sigmoid_scale_forward(std::int64_t rows, std::int64_t n, const float* x, const float* logits, float* y) {
    for (std::int64_t row = 0; row < rows; ++row) {
        const float factor = logistic(logits[row]);
        const float* in = x + row * n;
        float* out = y + row * n;
        ORRERY_INDEPENDENT
        for (std::int64_t i = 0; i < n; ++i) out[i] = in[i] * factor;
    }
}

ORRERY_VECTOR
void sigmoid_scale_backward(std::int64_t rows, std::int64_t n, const float* dy, const float* x, const float* logits,
                            float* dx, float* dlogits) {
    for (std::int64_t row = 0; row < rows; ++row) {
        const Logistic s = logistic_and_slope(logits[row]);
        const float* d = dy + row * n;
        const float* in = x + row * n;
        float* out = dx + row * n;
        const double dot =
            lane_sum<double>(n, [&](std::int64_t i) { return static_cast<double>(d[i]) * static_cast<double>(in[i]); });
        dlogits[row] = static_cast<float>(dot * static_cast<double>(s.slope));
        ORRERY_INDEPENDENT
        for (std::int64_t i = 0; i < n; ++i) out[i] = d[i] * s.value;
    }
}

}  // namespace orrery::kernels
