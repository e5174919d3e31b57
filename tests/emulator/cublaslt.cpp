// The emulated cuBLASLt. It has algorithms for products whose rows are aligned to 16 bytes, as NVIDIA's
// fastest ones want it, with a bias and a GELU input of the result's type; an algorithm remembers what it was chosen
// for, and refuses other products.
#include <cublasLt.h>

#include "tests/emulator/gemm.h"

struct cublasLtContext {};
struct emulated_layout {
    cudaDataType type;
    std::int64_t rows, columns, width;
    [[nodiscard]] emulated::Matrix at(const void* data) const {
        return {const_cast<void*>(data), rows, columns, width, type};
    }
};
struct emulated_product {
    std::int32_t turns_a = 0, turns_b = 0;
    std::uint32_t epilogue = 1;
    const void* bias = nullptr;
    std::int32_t bias_type = -1;
    void* before_gelu = nullptr;
    std::int64_t width_before_gelu = 0;
    [[nodiscard]] bool has_bias() const { return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
    [[nodiscard]] bool has_gelu() const {
        return (epilogue & CUBLASLT_EPILOGUE_GELU_AUX) == CUBLASLT_EPILOGUE_GELU_AUX;
    }
};
struct emulated_preference {
    std::uint64_t workspace_bytes = 0;
    std::uint32_t reductions = 7;
    std::uint32_t alignments[4] = {256, 256, 256, 256};  // of a, b, c and d
};

namespace {

constexpr std::size_t kWorkspaceBytes = 4096;  // that an algorithm wants

template <typename T>
cublasStatus_t take(T& to, const void* value, std::size_t bytes) {
    if (bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

/// Differs between any two products that need different algorithms.
std::uint64_t mark_of(const emulated_product& product, const emulated_layout& a, const emulated_layout& b,
                      const emulated_layout& d) {
    std::uint64_t mark = 0;
    for (const std::int64_t one :
         {std::int64_t{product.turns_a}, std::int64_t{product.turns_b}, std::int64_t{product.epilogue},
          std::int64_t{product.bias_type}, product.width_before_gelu, a.rows, a.columns, a.width, std::int64_t{a.type},
          b.rows, b.columns, b.width, std::int64_t{b.type}, d.rows, d.columns, d.width, std::int64_t{d.type}}) {
        mark = (mark ^ static_cast<std::uint64_t>(one)) * 0x100000001b3ULL;
    }
    return mark;
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    *handle = new cublasLtContext;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                        cudaDataType scale) {
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
    *product = new emulated_product;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
    delete product;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
    switch (attribute) {
        case CUBLASLT_MATMUL_DESC_TRANSA:
            return take(product->turns_a, value, bytes);
        case CUBLASLT_MATMUL_DESC_TRANSB:
            return take(product->turns_b, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE:
            return take(product->epilogue, value, bytes);
        case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
            return take(product->bias, value, bytes);
        case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
            return take(product->bias_type, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
            return take(product->before_gelu, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
            return take(product->width_before_gelu, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t width) {
    *layout = new emulated_layout{type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), width};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
    *preference = new emulated_preference;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
    switch (attribute) {
        case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
            return take(preference->workspace_bytes, value, bytes);
        case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
            return take(preference->reductions, value, bytes);
        default:
            return take(preference->alignments[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
    }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t* results, int* count) {
    constexpr std::int64_t kAlignment = 16;
    *count = 0;
    if (most < 1) return CUBLAS_STATUS_INVALID_VALUE;
    const auto is_aligned = [](const emulated_layout& layout) {
        return layout.width * (layout.type == CUDA_R_16BF ? 2 : 4) % kAlignment == 0;
    };
    const std::uint32_t others = ~static_cast<std::uint32_t>(CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
    const bool has_known_epilogue = product->epilogue == CUBLASLT_EPILOGUE_DEFAULT ||
                                    ((product->epilogue & others) == 0 && (product->has_bias() || product->has_gelu()));
    bool fits = a->type == b->type && (a->type == CUDA_R_16BF || d->type == CUDA_R_32F) && c->type == d->type &&
                has_known_epilogue && (!product->has_bias() || product->bias_type == d->type) &&
                (!product->has_gelu() || product->width_before_gelu % 8 == 0) && is_aligned(*a) && is_aligned(*b) &&
                is_aligned(*d) && preference->workspace_bytes >= kWorkspaceBytes;
    for (const std::uint32_t alignment : preference->alignments) fits = fits && alignment >= kAlignment;
    if (!fits) return CUBLAS_STATUS_NOT_SUPPORTED;
    *count = 1;
    *results = {{{mark_of(*product, *a, *b, *d)}}, kWorkspaceBytes, CUBLAS_STATUS_SUCCESS};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t product, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t of_a, const void* b, cublasLtMatrixLayout_t of_b,
                              const void* beta, const void* c, cublasLtMatrixLayout_t of_c, void* d,
                              cublasLtMatrixLayout_t of_d, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
    if (stream == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;  // Orrery never uses the default stream
    emulated::Gemm gemm{.turns_a = product->turns_a == CUBLAS_OP_T,
                        .turns_b = product->turns_b == CUBLAS_OP_T,
                        .a = of_a->at(a),
                        .b = of_b->at(b),
                        .c = of_d->at(d),
                        .factor = *static_cast<const float*>(alpha),
                        .keep = *static_cast<const float*>(beta),
                        .workspace = {workspace, workspace_bytes}};
    if (product->has_bias()) {
        gemm.bias = {const_cast<void*>(product->bias), gemm.c.rows, 1, gemm.c.rows,
                     static_cast<cudaDataType>(product->bias_type)};
    }
    if (product->has_gelu()) {
        gemm.before_gelu = {product->before_gelu, gemm.c.rows, gemm.c.columns, product->width_before_gelu, gemm.c.type};
    }
    const bool is_valid = algorithm->data[0] == mark_of(*product, *of_a, *of_b, *of_d) && c == d && of_c == of_d &&
                          workspace_bytes >= kWorkspaceBytes && gemm.workspace.is_valid() && gemm.is_valid();
    if (!is_valid) return CUBLAS_STATUS_INVALID_VALUE;
    return gemm.queue(stream) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
