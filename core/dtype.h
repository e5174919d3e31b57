// Element types of tensors and arithmetic.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace orrery {

enum class DType : std::uint8_t {
    fp64,
    fp32,
    bf16,
    fp16,
    int64,
    int32,
    uint8,
    fp8,   // E4M3 or E5M2
    fp4,   // E2M1; one byte of storage holds two values
    tf32,  // fp32 values multiplied on tf32 matrix units; a type of arithmetic, never of a stored tensor
};

/// Bytes of one element.
[[nodiscard]] constexpr std::int64_t size_of(DType dtype) {
    switch (dtype) {
        case DType::fp64:
            return 8;
        case DType::fp32:
            return 4;
        case DType::int64:
            return 8;
        case DType::int32:
            return 4;
        case DType::bf16:
            return 2;
        case DType::fp16:
            return 2;
        case DType::uint8:
            return 1;
        case DType::fp8:
            return 1;
        case DType::fp4:
            return 1;
        case DType::tf32:
            return 4;
    }
    return 0;
}

[[nodiscard]] constexpr std::string_view name_of(DType dtype) {
    switch (dtype) {
        case DType::fp64:
            return "fp64";
        case DType::fp32:
            return "fp32";
        case DType::int64:
            return "int64";
        case DType::int32:
            return "int32";
        case DType::bf16:
            return "bf16";
        case DType::fp16:
            return "fp16";
        case DType::uint8:
            return "uint8";
        case DType::fp8:
            return "fp8";
        case DType::fp4:
            return "fp4";
        case DType::tf32:
            return "tf32";
    }
    return "?";
}

[[nodiscard]] constexpr std::optional<DType> dtype_named(std::string_view name) {
    for (DType dtype : {DType::fp64, DType::fp32, DType::bf16, DType::fp16, DType::int64, DType::int32, DType::uint8,
                        DType::fp8, DType::fp4, DType::tf32}) {
        if (name_of(dtype) == name) return dtype;
    }
    return std::nullopt;
}

}  // namespace orrery
