// The emulated cuBLAS.
#include <cublas_v2.h>

#include "tests/emulator/gemm.h"

using emulated::Gemm;

struct cublasContext {
    cudaStream_t stream = nullptr;
    emulated::Workspace workspace;
};

extern "C" void openblas_set_num_threads(int threads) __attribute__((weak));

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
    handle->workspace = {};  // back to cuBLAS's own
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, std::size_t bytes) {
    if (!emulated::Workspace{workspace, bytes}.is_valid()) return CUBLAS_STATUS_INVALID_VALUE;
    handle->workspace = {workspace, bytes};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t /*handle*/, cublasMath_t mode) {
    return mode == CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION ? CUBLAS_STATUS_SUCCESS
                                                                    : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t of_a, cublasOperation_t of_b, std::int64_t m,
                               std::int64_t n, std::int64_t k, const void* alpha, const void* a, cudaDataType type_a,
                               std::int64_t lda, const void* b, cudaDataType type_b, std::int64_t ldb, const void* beta,
                               void* c, cudaDataType type_c, std::int64_t ldc, cublasComputeType_t compute,
                               cublasGemmAlgo_t algorithm) {
    if (handle->stream == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;  // Orrery never uses the default stream
    const bool is_supported = type_a == type_b && (type_a == CUDA_R_16BF || type_c == CUDA_R_32F) &&
                              compute == CUBLAS_COMPUTE_32F && algorithm == CUBLAS_GEMM_DEFAULT;
    if (!is_supported) return CUBLAS_STATUS_NOT_SUPPORTED;
    const bool turns_a = of_a == CUBLAS_OP_T, turns_b = of_b == CUBLAS_OP_T;
    // alpha and beta are read at the call, since they are in host memory.
    const Gemm gemm{.turns_a = turns_a,
                    .turns_b = turns_b,
                    .a = {const_cast<void*>(a), turns_a ? k : m, turns_a ? m : k, lda, type_a},
                    .b = {const_cast<void*>(b), turns_b ? n : k, turns_b ? k : n, ldb, type_b},
                    .c = {c, m, n, ldc, type_c},
                    .factor = *static_cast<const float*>(alpha),
                    .keep = *static_cast<const float*>(beta),
                    .workspace = handle->workspace};
    if (!gemm.is_valid()) return CUBLAS_STATUS_INVALID_VALUE;
    const cudaError_t error = gemm.queue(handle->stream);
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
