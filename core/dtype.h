// Element types of tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace orrery {

enum class DType : std::uint8_t { fp64, fp32, bf16, fp16, int32, uint8 };

/// Bytes of one element.
[[nodiscard]] constexpr std::int64_t size_of(DType dtype) {
    switch (dtype) {
        case DType::fp64:
            return 8;
        case DType::fp32:
            return 4;
        case DType::int32:
            return 4;
        case DType::bf16:
            return 2;
        case DType::fp16:
            return 2;
        case DType::uint8:
            return 1;
    }
    return 0;
}

[[nodiscard]] constexpr std::string_view name_of(DType dtype) {
    switch (dtype) {
        case DType::fp64:
            return "fp64";
        case DType::fp32:
            return "fp32";
        case DType::int32:
            return "int32";
        case DType::bf16:
            return "bf16";
        case DType::fp16:
            return "fp16";
        case DType::uint8:
            return "uint8";
    }
    return "?";
}

[[nodiscard]] constexpr std::optional<DType> dtype_named(std::string_view name) {
    for (DType dtype : {DType::fp64, DType::fp32, DType::bf16, DType::fp16, DType::int32, DType::uint8}) {
        if (name_of(dtype) == name) return dtype;
    }
    return std::nullopt;
}

}  // namespace orrery
