// The emulated cuBLAS: its GEMMs are queued on the emulated device and computed by the BLAS of this machine.
#include <cblas.h>
#include <cublas_v2.h>
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/emulator/device.h"

namespace {

/// Memory for the results of parts of a product.
struct Workspace {
    void* memory = nullptr;
    std::size_t bytes = 0;
    /// So that whoever else keeps values there loses them.
    void fill() const {
        constexpr std::size_t kMost = 4096;
        if (memory == nullptr) return;
        std::memset(memory, 0xff, std::min(bytes, kMost));
        emulated::note_write(memory, std::min(bytes, kMost));
    }
};

}  // namespace

struct cublasContext {
    cudaStream_t stream = nullptr;
    Workspace workspace;
};

extern "C" void openblas_set_num_threads(int threads) __attribute__((weak));

namespace {

/// A column-major matrix in device memory.
struct Matrix {
    void* data;
    std::int64_t rows, columns, width;
    cudaDataType type;
    /// From the first to behind the last element.
    [[nodiscard]] std::size_t elements() const {
        if (rows == 0 || columns == 0) return 0;
        return static_cast<std::size_t>(width * (columns - 1) + rows);
    }
    [[nodiscard]] std::size_t bytes() const { return elements() * (type == CUDA_R_16BF ? 2 : 4); }
    [[nodiscard]] bool is_valid() const {
        if (rows < 0 || columns < 0 || width < std::max<std::int64_t>(1, rows)) return false;
        if (bytes() == 0) return true;
        emulated::Device& device = emulated::Device::instance();
        return device.place_of(data) == emulated::Place::device && device.is_whole(data, bytes());
    }
    /// Its elements, with those between its columns.
    [[nodiscard]] std::vector<float> values() const {
        if (type == CUDA_R_32F) {
            const auto* first = static_cast<const float*>(data);
            return {first, first + elements()};
        }
        std::vector<float> wide(elements());
        const auto* first = static_cast<const __nv_bfloat16*>(data);
        std::transform(first, first + elements(), wide.begin(), __bfloat162float);
        return wide;
    }
    void write(const std::vector<float>& values) const {
        for (std::int64_t i = 0; i < rows * columns; ++i) {
            const std::int64_t at = i / rows * width + i % rows;
            const float value = values[static_cast<std::size_t>(at)];
            if (type == CUDA_R_32F) {
                static_cast<float*>(data)[at] = value;
            } else {
                static_cast<__nv_bfloat16*>(data)[at] = __float2bfloat16_rn(value);
            }
        }
    }
};

/// c = factor * a b + keep * c, summed in fp32.
void multiply(bool turns_a, bool turns_b, const Matrix& a, const Matrix& b, float factor, float keep, const Matrix& c) {
    const std::int64_t inner = turns_a ? a.rows : a.columns;
    // cuBLAS does not read a result that it does not keep.
    std::vector<float> sum = keep == 0.0F ? std::vector<float>(c.elements()) : c.values();
    const std::vector<float> left = a.values(), right = b.values();
    const auto extent = [](std::int64_t value) { return static_cast<int>(value); };
    cblas_sgemm(CblasColMajor, turns_a ? CblasTrans : CblasNoTrans, turns_b ? CblasTrans : CblasNoTrans, extent(c.rows),
                extent(c.columns), extent(inner), factor, left.data(), extent(a.width), right.data(), extent(b.width),
                keep, sum.data(), extent(c.width));
    c.write(sum);
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
    handle->workspace = {};  // back to cuBLAS's own
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, std::size_t bytes) {
    constexpr std::uintptr_t kAlignment = 256;
    if (reinterpret_cast<std::uintptr_t>(workspace) % kAlignment != 0) return CUBLAS_STATUS_INVALID_VALUE;
    emulated::Device& device = emulated::Device::instance();
    if (bytes > 0 && (device.place_of(workspace) != emulated::Place::device || !device.is_whole(workspace, bytes))) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
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
    const Matrix left{const_cast<void*>(a), turns_a ? k : m, turns_a ? m : k, lda, type_a};
    const Matrix right{const_cast<void*>(b), turns_b ? n : k, turns_b ? k : n, ldb, type_b};
    const Matrix result{c, m, n, ldc, type_c};
    if (!left.is_valid() || !right.is_valid() || !result.is_valid()) return CUBLAS_STATUS_INVALID_VALUE;
    // Read at the call, since they are in host memory.
    const float factor = *static_cast<const float*>(alpha), keep = *static_cast<const float*>(beta);
    const Workspace workspace = handle->workspace;
    const cudaError_t error = emulated::Device::instance().queue(handle->stream, [=] {
        if (result.elements() == 0) return emulated::Progress::done;
        workspace.fill();
        emulated::note_read(left.data, left.bytes());
        emulated::note_read(right.data, right.bytes());
        multiply(turns_a, turns_b, left, right, factor, keep, result);
        emulated::note_write(result.data, result.bytes());
        return emulated::Progress::done;
    });
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
