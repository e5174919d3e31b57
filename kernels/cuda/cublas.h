// Private to the products: cuBLAS's types, and its errors as Orrery's.
#pragma once

#include <cublas_v2.h>

#include <string>

#include "core/error.h"
#include "kernels/cuda/floats.h"

namespace orrery::kernels::cuda {

/// Throws JobError naming the call.
inline void check_cublas(cublasStatus_t status, const char* call) {
    if (status != CUBLAS_STATUS_SUCCESS) {
        throw JobError(std::string(call) + ": cuBLAS status " + std::to_string(static_cast<int>(status)));
    }
}

inline cudaDataType cublas_type_of(DType type) {
    return type == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

}  // namespace orrery::kernels::cuda
