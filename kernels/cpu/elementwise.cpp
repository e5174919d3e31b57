// Flat vectors: sums, reductions and copies.
#include <cstring>

#include "core/float16.h"
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
void bias_add(std::int64_t rows, std::int64_t n, const float* x, const float* bias, float* y) {
    for (std::int64_t row = 0; row < rows; ++row) {
        const float* in = x + row * n;
        float* out = y + row * n;
        ORRERY_INDEPENDENT
        for (std::int64_t i = 0; i < n; ++i) out[i] = in[i] + bias[i];
    }
}

ORRERY_VECTOR
void cast_to_bf16(std::int64_t elements, const float* x, std::uint16_t* y) {
    ORRERY_INDEPENDENT
    for (std::int64_t i = 0; i < elements; ++i) y[i] = to_bf16(x[i]);
}
ORRERY_VECTOR
void cast_from_bf16(std::int64_t elements, const std::uint16_t* x, float* y) {
    ORRERY_INDEPENDENT
    for (std::int64_t i = 0; i < elements; ++i) y[i] = from_bf16(x[i]);
}

}  // namespace orrery::kernels
