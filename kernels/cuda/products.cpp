#include "kernels/cuda/products.h"

#include <cublas_v2.h>

#include <limits>
#include <string>

#include "core/error.h"
#include "kernels/cuda/library.h"

namespace orrery::kernels::cuda {
namespace {

void check(cublasStatus_t status, const char* call) {
    if (status != CUBLAS_STATUS_SUCCESS) {
        throw JobError(std::string(call) + ": cuBLAS status " + std::to_string(static_cast<int>(status)));
    }
}

int extent(std::int64_t value) {
    ORRERY_CHECK(value >= 0 && value <= std::numeric_limits<int>::max(), "a GEMM is too large for cuBLAS");
    return static_cast<int>(value);
}

/// A row-major factor of a GEMM, and whether it is transposed.
struct Factor {
    const float* data;
    std::int64_t width;
    bool transposed;
};

}  // namespace

struct Products::Impl {
    Library library{"libcublas.so." + std::to_string(CUBLAS_VER_MAJOR)};
    decltype(cublasCreate_v2)* create = library.function<decltype(cublasCreate_v2)>("cublasCreate_v2");
    decltype(cublasDestroy_v2)* destroy = library.function<decltype(cublasDestroy_v2)>("cublasDestroy_v2");
    decltype(cublasSetStream_v2)* set_stream = library.function<decltype(cublasSetStream_v2)>("cublasSetStream_v2");
    decltype(cublasSetMathMode)* set_math = library.function<decltype(cublasSetMathMode)>("cublasSetMathMode");
    decltype(cublasSgemm_v2)* sgemm = library.function<decltype(cublasSgemm_v2)>("cublasSgemm_v2");
    cublasHandle_t handle = nullptr;

    /// c[rows, columns] = a b + keep * c, all row-major. cuBLAS is column-major and so computes the transposed product.
    void multiply(StreamHandle stream, std::int64_t rows, std::int64_t columns, std::int64_t inner, Factor a, Factor b,
                  float keep, float* c) {
        const float one = 1.0F;
        check(set_stream(handle, static_cast<cudaStream_t>(stream.stream)), "cublasSetStream");
        check(sgemm(handle, b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                    extent(columns), extent(rows), extent(inner), &one, b.data, extent(b.width), a.data,
                    extent(a.width), &keep, c, extent(columns)),
              "cublasSgemm");
    }
};

Products::Products() : impl_(std::make_unique<Impl>()) {
    check(impl_->create(&impl_->handle), "cublasCreate");
    check(impl_->set_math(impl_->handle, CUBLAS_DEFAULT_MATH), "cublasSetMathMode");  // for fp32 this excludes TF32
}

Products::~Products() {
    if (impl_->handle != nullptr) impl_->destroy(impl_->handle);
}

void Products::linear_forward(StreamHandle stream, const LinearShape& shape, const float* x, const float* weight,
                              const float* bias, float* y) {
    if (bias != nullptr) set_bias(stream, shape.rows, shape.n, bias, y);
    impl_->multiply(stream, shape.rows, shape.n, shape.k, {x, shape.k, false}, {weight, shape.k, true},
                    bias != nullptr ? 1.0F : 0.0F, y);
}

void Products::linear_backward_input(StreamHandle stream, const LinearShape& shape, const float* dy,
                                     const float* weight, float* dx) {
    impl_->multiply(stream, shape.rows, shape.k, shape.n, {dy, shape.n, false}, {weight, shape.k, false}, 0.0F, dx);
}

void Products::linear_backward_weight(StreamHandle stream, const LinearShape& shape, const float* dy, const float* x,
                                      float* dweight, float* dbias) {
    impl_->multiply(stream, shape.n, shape.k, shape.rows, {dy, shape.n, true}, {x, shape.k, false}, 1.0F, dweight);
    if (dbias != nullptr) bias_backward(stream, shape.rows, shape.n, dy, dbias);
}

}  // namespace orrery::kernels::cuda
