// Row-major sgemm with checked sizes: C[m,n] = alpha * op(A) op(B) + beta * C.
#pragma once

#include <cblas.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/error.h"

namespace orrery::kernels {

struct Matrix {
    const float* data = nullptr;
    std::int64_t stride = 0;  // elements from row to row
    bool transposed = false;
};

/// Rows of C per BLAS call. OpenBLAS first copies all rows of op(A) to an internal buffer, which it keeps. If the rows
/// were a whole vocabulary, the buffer would be larger than the activations of a small model. Splitting into calls of
/// this size costs no measurable time.
inline constexpr std::int64_t kRowsAtOnce = 2048;

inline void multiply(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, Matrix a, Matrix b, float beta,
                     float* c, std::int64_t c_stride) {
    constexpr std::int64_t kMost = std::numeric_limits<int>::max();
    ORRERY_CHECK(m <= kMost && n <= kMost && k <= kMost && a.stride <= kMost && b.stride <= kMost && c_stride <= kMost,
                 "matrix dimensions exceed the 32-bit BLAS interface");
    for (std::int64_t row = 0; row < m; row += kRowsAtOnce) {
        cblas_sgemm(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans, b.transposed ? CblasTrans : CblasNoTrans,
                    static_cast<int>(std::min(kRowsAtOnce, m - row)), static_cast<int>(n), static_cast<int>(k), alpha,
                    a.data + row * (a.transposed ? 1 : a.stride), static_cast<int>(a.stride), b.data,
                    static_cast<int>(b.stride), beta, c + row * c_stride, static_cast<int>(c_stride));
    }
}

}  // namespace orrery::kernels
