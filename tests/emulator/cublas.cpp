// The emulated cuBLAS: its GEMMs are queued on the emulated device and computed by the BLAS of this machine.
#include <cblas.h>
#include <cublas_v2.h>

#include <algorithm>

#include "tests/emulator/device.h"

struct cublasContext {
    cudaStream_t stream = nullptr;
};

extern "C" void openblas_set_num_threads(int threads) __attribute__((weak));

namespace {

/// From the first to behind the last element of a column-major matrix.
std::size_t bytes_of(int rows, int columns, int width) {
    if (rows == 0 || columns == 0) return 0;
    return (static_cast<std::size_t>(width) * static_cast<std::size_t>(columns - 1) + static_cast<std::size_t>(rows)) *
           sizeof(float);
}

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
    if (openblas_set_num_threads != nullptr) openblas_set_num_threads(1);  // ranks share the machine's cores
    *handle = new cublasContext;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t /*handle*/, cublasMath_t mode) {
    return mode == CUBLAS_DEFAULT_MATH ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t of_a, cublasOperation_t of_b, int m, int n,
                              int k, const float* alpha, const float* a, int lda, const float* b, int ldb,
                              const float* beta, float* c, int ldc) {
    if (handle->stream == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;  // Orrery never uses the default stream
    const bool turns_a = of_a == CUBLAS_OP_T, turns_b = of_b == CUBLAS_OP_T;
    const int rows_a = turns_a ? k : m, rows_b = turns_b ? n : k;
    const std::size_t bytes_a = bytes_of(rows_a, turns_a ? m : k, lda),
                      bytes_b = bytes_of(rows_b, turns_b ? k : n, ldb);
    const std::size_t bytes_c = bytes_of(m, n, ldc);
    if (m < 0 || n < 0 || k < 0 || lda < std::max(1, rows_a) || ldb < std::max(1, rows_b) || ldc < std::max(1, m)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    emulated::Device& device = emulated::Device::instance();
    for (const auto& [memory, bytes] : {std::pair<const void*, std::size_t>{a, bytes_a}, {b, bytes_b}, {c, bytes_c}}) {
        if (bytes == 0) continue;
        if (device.place_of(memory) != emulated::Place::device || !device.is_whole(memory, bytes)) {
            return CUBLAS_STATUS_INVALID_VALUE;
        }
    }
    const float factor = *alpha, keep = *beta;  // read at the call, since they are in host memory
    const cudaError_t error = device.queue(handle->stream, [=] {
        if (m == 0 || n == 0) return emulated::Progress::done;
        emulated::note_read(a, bytes_a);
        emulated::note_read(b, bytes_b);
        cblas_sgemm(CblasColMajor, turns_a ? CblasTrans : CblasNoTrans, turns_b ? CblasTrans : CblasNoTrans, m, n, k,
                    factor, a, lda, b, ldb, keep, c, ldc);
        emulated::note_write(c, bytes_c);
        return emulated::Progress::done;
    });
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
