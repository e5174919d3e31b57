#include "tests/emulator/combine.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tests/emulator/fatal.h"

namespace emulated {
namespace {

float widened(std::uint16_t bf16) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bf16) << 16U);
}

/// To the nearest, ties to even; NaN stays NaN.
std::uint16_t narrowed(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if (value != value) return static_cast<std::uint16_t>(bits >> 16U | 0x40U);
    return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U);
}

template <typename T>
T both(T a, T b, ncclRedOp_t reduce) {
    return reduce == ncclMax ? std::max(a, b) : static_cast<T>(a + b);
}

template <typename T>
T mean(T sum, std::size_t parts) {
    return static_cast<T>(sum / static_cast<T>(parts));
}

template <typename T>
void combine_as(const std::vector<const std::byte*>& parts, std::byte* out, std::size_t elements, ncclRedOp_t reduce) {
    const auto at = [](const std::byte* part, std::size_t i) {
        T value;
        std::memcpy(&value, part + i * sizeof(T), sizeof(T));
        return value;
    };
    for (std::size_t i = 0; i < elements; ++i) {
        T result = at(parts.front(), i);
        for (std::size_t p = 1; p < parts.size(); ++p) result = both(result, at(parts[p], i), reduce);
        if (reduce == ncclAvg) result = mean(result, parts.size());
        std::memcpy(out + i * sizeof(T), &result, sizeof(T));
    }
}

void combine_bf16(const std::vector<const std::byte*>& parts, std::byte* out, std::size_t elements,
                  ncclRedOp_t reduce) {
    const auto at = [](const std::byte* part, std::size_t i) {
        std::uint16_t value = 0;
        std::memcpy(&value, part + i * sizeof value, sizeof value);
        return widened(value);
    };
    for (std::size_t i = 0; i < elements; ++i) {
        float result = at(parts.front(), i);
        for (std::size_t p = 1; p < parts.size(); ++p) {
            result = widened(narrowed(both(result, at(parts[p], i), reduce)));
        }
        if (reduce == ncclAvg) result = mean(result, parts.size());
        const std::uint16_t rounded = narrowed(result);
        std::memcpy(out + i * sizeof rounded, &rounded, sizeof rounded);
    }
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
    switch (type) {
        case ncclUint8:
            return 1;
        case ncclBfloat16:
            return 2;
        case ncclInt32:
        case ncclFloat32:
            return 4;
        case ncclInt64:
        case ncclFloat64:
            return 8;
    }
    die("a collective on a type that the emulated NCCL does not have");
}

void combine(const std::vector<const std::byte*>& parts, std::byte* out, std::size_t elements, ncclDataType_t type,
             ncclRedOp_t reduce) {
    switch (type) {
        case ncclUint8:
            return combine_as<std::uint8_t>(parts, out, elements, reduce);
        case ncclBfloat16:
            return combine_bf16(parts, out, elements, reduce);
        case ncclInt32:
            return combine_as<std::int32_t>(parts, out, elements, reduce);
        case ncclInt64:
            return combine_as<std::int64_t>(parts, out, elements, reduce);
        case ncclFloat32:
            return combine_as<float>(parts, out, elements, reduce);
        case ncclFloat64:
            return combine_as<double>(parts, out, elements, reduce);
    }
}

}  // namespace emulated
