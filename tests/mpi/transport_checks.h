// Helpers of the checks under mpirun: values that depend on the rank, and counts of bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "core/error.h"
#include "exec/transport/progress.h"
#include "exec/transport/transport.h"

namespace orrery::exec {

using program::ReduceOp;
using program::Stream;

#define EXPECT(condition, message) \
    if (!(condition))              \
    throw JobError(std::string(__func__) + ":" + std::to_string(__LINE__) + ": " #condition ": " + (message))

// Small integers, whose sums over eight ranks are exact in fp32 in any order.
template <typename T>
T value(int rank, std::int64_t i) {
    return static_cast<T>((i * 7 + rank * 13) % 101 - 50);
}

template <typename T>
constexpr DType dtype_of() {
    return std::is_same_v<T, double> ? DType::fp64 : DType::fp32;
}

template <typename T>
T expected(ReduceOp op, const std::vector<int>& ranks, std::int64_t i) {
    T result = value<T>(ranks.front(), i);
    for (std::size_t k = 1; k < ranks.size(); ++k) {
        const T next = value<T>(ranks[k], i);
        result = op == ReduceOp::sum ? result + next : std::max(result, next);
    }
    return result;
}

template <typename T>
std::vector<T> filled(int rank, std::int64_t elements) {
    std::vector<T> data(static_cast<std::size_t>(elements));
    for (std::int64_t i = 0; i < elements; ++i) data[static_cast<std::size_t>(i)] = value<T>(rank, i);
    return data;
}

inline std::int64_t total_over_ranks(Transport& transport, std::int64_t mine) {
    std::int64_t total = 0;
    for (const std::string& part : transport.gather(std::to_string(mine))) total += std::stoll(part);
    return total;  // on rank 0
}

struct Volume {
    std::int64_t sent = 0, received = 0;
};

inline Volume volume(const ProgressEngine& engine, Stream stream) {
    return {engine.bytes_sent(stream), engine.bytes_received(stream)};
}

/// Checks all kinds of operations except send and recv, in groups of all ranks in both orders (transport_kinds.cpp).
void check_kinds(Transport& transport, ProgressEngine& engine, GroupHandle world, GroupHandle reversed);
/// Checks wait() and describe_pending() while rank 0 keeps the others waiting.
void check_pending(Transport& transport, ProgressEngine& engine, GroupHandle world);

}  // namespace orrery::exec
