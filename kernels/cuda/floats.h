// Numbers in device memory whose type, fp32 or bf16, is known when a kernel is queued. Kernels compute in fp32 or wider
// and round what they store: one kernel serves all types of its operands.
#pragma once

#include <cstdint>

#include "core/dtype.h"

#ifdef __CUDACC__
#define ORRERY_HOST_AND_DEVICE __host__ __device__
#else
#define ORRERY_HOST_AND_DEVICE
#endif

namespace orrery::kernels::cuda {

struct ConstFloats {
    const void* data = nullptr;
    DType type = DType::fp32;  // or bf16
    [[nodiscard]] ORRERY_HOST_AND_DEVICE bool present() const { return data != nullptr; }
    /// From this element on.
    [[nodiscard]] ORRERY_HOST_AND_DEVICE ConstFloats from(std::int64_t element) const {
        return {static_cast<const char*>(data) + element * (type == DType::bf16 ? 2 : 4), type};
    }
};

struct Floats {
    void* data = nullptr;
    DType type = DType::fp32;  // or bf16
    [[nodiscard]] ORRERY_HOST_AND_DEVICE bool present() const { return data != nullptr; }
    [[nodiscard]] ORRERY_HOST_AND_DEVICE Floats from(std::int64_t element) const {
        return {static_cast<char*>(data) + element * (type == DType::bf16 ? 2 : 4), type};
    }
    // NOLINTNEXTLINE(google-explicit-constructor): like the conversion of a pointer to a pointer to const
    ORRERY_HOST_AND_DEVICE operator ConstFloats() const { return {data, type}; }
};

/// Some columns of a row-major matrix, as in kernels/views.h.
struct ConstFloatRows {
    ConstFloats data;
    std::int64_t width = 0;
};
struct FloatRows {
    Floats data;
    std::int64_t width = 0;
    // NOLINTNEXTLINE(google-explicit-constructor)
    ORRERY_HOST_AND_DEVICE operator ConstFloatRows() const { return {data, width}; }
};

}  // namespace orrery::kernels::cuda
