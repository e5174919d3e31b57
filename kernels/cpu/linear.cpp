// Linear layers through BLAS, and column sums for their biases.
#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "kernels/cpu/blas.h"
#include "kernels/cpu/vector.h"
#include "kernels/kernels.h"

// Present in OpenBLAS only; weak references are null with any other BLAS.
extern "C" {
void openblas_set_num_threads(int threads) __attribute__((weak));
char* openblas_get_corename() __attribute__((weak));
void gotoblas_dynamic_init() __attribute__((weak));
void gotoblas_dynamic_quit() __attribute__((weak));
}

namespace orrery::kernels {
namespace {

/// OpenBLAS selects its kernels from a list of processor models. On a processor newer than the list (such as current
/// servers with Debian 12's 0.3.21) it uses the kernels of the Pentium 4 (Prescott), which are several times slower
/// than AVX-512 or AVX2. In that case, unless the user has chosen kernels, this function selects them by the
/// processor's feature flags.
void choose_blas_kernels() {
#if defined(__x86_64__)
    if (openblas_get_corename == nullptr || gotoblas_dynamic_init == nullptr || gotoblas_dynamic_quit == nullptr)
        return;
    constexpr const char* kChoice = "OPENBLAS_CORETYPE";
    if (std::getenv(kChoice) != nullptr || std::string_view(openblas_get_corename()) != "Prescott") return;
    const bool avx512 = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
                        __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0;
    const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
    if (!avx512 && !avx2) return;
    ::setenv(kChoice, avx512 ? "SkylakeX" : "Haswell", 0);
    gotoblas_dynamic_quit();
    gotoblas_dynamic_init();
#endif
}

}  // namespace

void set_blas_threads(int threads) {
    choose_blas_kernels();
    if (openblas_set_num_threads != nullptr) openblas_set_num_threads(threads);
}

void linear_forward(const LinearShape& shape, ConstRows x, const float* weight, const float* bias, Rows y) {
    // The output starts with the bias and the GEMM adds to it, which saves a pass over y.
    if (bias != nullptr) {
        for (std::int64_t row = 0; row < shape.rows; ++row) copy(shape.n, bias, y.data + row * y.width);
    }
    multiply(shape.rows, shape.n, shape.k, 1.0F, {x.data, x.width}, {weight, shape.k, true},
             bias != nullptr ? 1.0F : 0.0F, y.data, y.width);
}

void linear_backward_input(const LinearShape& shape, ConstRows dy, const float* weight, Rows dx) {
    multiply(shape.rows, shape.k, shape.n, 1.0F, {dy.data, dy.width}, {weight, shape.k}, 0.0F, dx.data, dx.width);
}

void linear_backward_weight(const LinearShape& shape, ConstRows dy, ConstRows x, float* dweight, float* dbias) {
    multiply(shape.n, shape.k, shape.rows, 1.0F, {dy.data, dy.width, true}, {x.data, x.width}, 1.0F, dweight, shape.k);
    if (dbias != nullptr) bias_backward(shape.rows, shape.n, dy, dbias);
}

ORRERY_VECTOR
void bias_backward(std::int64_t rows, std::int64_t n, ConstRows dy, float* dbias) {
    constexpr std::int64_t kColumns = 256;
    double sums[kColumns];
    for (std::int64_t begin = 0; begin < n; begin += kColumns) {
        const std::int64_t count = std::min(kColumns, n - begin);
        for (std::int64_t i = 0; i < count; ++i) sums[i] = 0.0;
        for (std::int64_t row = 0; row < rows; ++row) {
            const float* values = dy.data + row * dy.width + begin;
            for (std::int64_t i = 0; i < count; ++i) sums[i] += static_cast<double>(values[i]);
        }
        for (std::int64_t i = 0; i < count; ++i) dbias[begin + i] += static_cast<float>(sums[i]);
    }
}

}  // namespace orrery::kernels
