// Flat vectors: sums, reductions, copies and the optimizer.
#include <cmath>
#include <cstring>

#include "kernels/cpu/vector.h"
#include "kernels/kernels.h"

namespace orrery::kernels {

ORRERY_VECTOR
void residual_add(std::int64_t rows, std::int64_t width, const float* a, const float* b, const float* bias, float* y) {
    if (bias == nullptr) {
        const std::int64_t elements = rows * width;
        ORRERY_INDEPENDENT
        for (std::int64_t i = 0; i < elements; ++i) y[i] = a[i] + b[i];
        return;
    }
    for (std::int64_t row = 0; row < rows; ++row) {
        const float* a_row = a + row * width;
        const float* b_row = b + row * width;
        float* y_row = y + row * width;
        ORRERY_INDEPENDENT
        for (std::int64_t i = 0; i < width; ++i) y_row[i] = (a_row[i] + b_row[i]) + bias[i];
    }
}

ORRERY_VECTOR
void fill(std::int64_t elements, float value, float* y) {
    for (std::int64_t i = 0; i < elements; ++i) y[i] = value;
}

void copy(std::int64_t elements, const float* x, float* y) {
    if (elements > 0) std::memcpy(y, x, static_cast<std::size_t>(elements) * sizeof(float));
}

ORRERY_VECTOR
void add(std::int64_t elements, const float* b, float* a) {
    ORRERY_INDEPENDENT
    for (std::int64_t i = 0; i < elements; ++i) a[i] += b[i];
}

ORRERY_VECTOR
void add(std::int64_t elements, const double* b, double* a) {
    ORRERY_INDEPENDENT
    for (std::int64_t i = 0; i < elements; ++i) a[i] += b[i];
}

ORRERY_VECTOR
void maximum(std::int64_t elements, const float* b, float* a) {
    ORRERY_INDEPENDENT
    for (std::int64_t i = 0; i < elements; ++i) a[i] = a[i] < b[i] ? b[i] : a[i];
}

ORRERY_VECTOR
void maximum(std::int64_t elements, const double* b, double* a) {
    ORRERY_INDEPENDENT
    for (std::int64_t i = 0; i < elements; ++i) a[i] = a[i] < b[i] ? b[i] : a[i];
}

ORRERY_VECTOR
void adamw(std::int64_t elements, const AdamW& options, float* parameters, float* m, float* v, float* gradient) {
    const double steps = static_cast<double>(options.step);
    const double correction1 = 1.0 - std::pow(options.beta1, steps);
    const double correction2 = 1.0 - std::pow(options.beta2, steps);
    const float keep = static_cast<float>(1.0 - options.learning_rate * options.weight_decay);
    const float rate = static_cast<float>(options.learning_rate / correction1);
    const float root = static_cast<float>(std::sqrt(correction2));
    const float beta1 = static_cast<float>(options.beta1);
    const float beta2 = static_cast<float>(options.beta2);
    const float rest1 = static_cast<float>(1.0 - options.beta1);
    const float rest2 = static_cast<float>(1.0 - options.beta2);
    const float epsilon = static_cast<float>(options.epsilon);
    ORRERY_INDEPENDENT
    for (std::int64_t i = 0; i < elements; ++i) {
        const float g = gradient[i];
        const float new_m = m[i] * beta1 + g * rest1;
        const float new_v = v[i] * beta2 + (g * g) * rest2;
        m[i] = new_m;
        v[i] = new_v;
        parameters[i] = parameters[i] * keep - rate * (new_m / (std::sqrt(new_v) / root + epsilon));
        gradient[i] = 0.0F;
    }
}

}  // namespace orrery::kernels
