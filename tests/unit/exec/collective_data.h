// Buffers of every element type for tests of collectives, with values that depend on the member.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "core/dtype.h"
#include "core/float16.h"
#include "sim/program/program.h"

namespace orrery::exec {

using program::ReduceOp;

using Buffer = std::vector<std::byte>;

inline constexpr int kMostMembers = 9;
inline constexpr int kUntouched = -99;
inline constexpr DType kReducible[] = {DType::fp32, DType::fp64, DType::bf16, DType::fp16, DType::int32, DType::int64};
inline constexpr DType kStored[] = {DType::fp32,  DType::fp64,  DType::bf16,  DType::fp16,
                                    DType::int32, DType::int64, DType::uint8, DType::fp8};

template <typename T>
void store(std::byte* at, T value) {
    std::memcpy(at, &value, sizeof value);
}

inline void put(DType dtype, std::byte* at, int value) {
    switch (dtype) {
        case DType::fp32:
            return store(at, static_cast<float>(value));
        case DType::fp64:
            return store(at, static_cast<double>(value));
        case DType::bf16:
            return store(at, to_bf16(static_cast<float>(value)));
        case DType::fp16:
            return store(at, to_fp16(static_cast<float>(value)));
        case DType::int32:
            return store(at, std::int32_t{value});
        case DType::int64:
            return store(at, std::int64_t{value});
        default:
            return store(at, static_cast<std::uint8_t>(value));
    }
}

inline Buffer filled(DType dtype, std::int64_t elements, const std::function<int(std::int64_t)>& value) {
    const std::int64_t size = size_of(dtype);
    Buffer result(static_cast<std::size_t>(elements * size));
    for (std::int64_t i = 0; i < elements; ++i) put(dtype, result.data() + i * size, value(i));
    return result;
}

inline Buffer untouched(DType dtype, std::int64_t elements) {
    return filled(dtype, elements, [](std::int64_t) { return kUntouched; });
}

// Values so small that sums over nine members are exact in bf16 and fp16.
inline int value(int member, std::int64_t i) {
    return static_cast<int>((i * 5 + member * 11) % 37 - 18);
}

inline Buffer input(DType dtype, int member, std::int64_t elements) {
    return filled(dtype, elements, [&](std::int64_t i) { return value(member, i); });
}

inline std::vector<Buffer> inputs(DType dtype, int n, std::int64_t elements) {
    std::vector<Buffer> result;
    for (int m = 0; m < n; ++m) result.push_back(input(dtype, m, elements));
    return result;
}

inline Buffer combined(DType dtype, int n, std::int64_t elements, ReduceOp op) {
    return filled(dtype, elements, [&](std::int64_t i) {
        int result = value(0, i);
        for (int m = 1; m < n; ++m) {
            result = op == ReduceOp::sum ? result + value(m, i) : std::max(result, value(m, i));
        }
        return result;
    });
}

inline Buffer part(const Buffer& whole, std::int64_t index, std::int64_t block_bytes) {
    return {whole.begin() + index * block_bytes, whole.begin() + (index + 1) * block_bytes};
}

inline std::int64_t total(const std::vector<std::int64_t>& sent) {
    return std::accumulate(sent.begin(), sent.end(), std::int64_t{0});
}

}  // namespace orrery::exec
