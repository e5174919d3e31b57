#include "exec/transport/reduce.h"

#include <string>
#include <type_traits>

#include "core/error.h"
#include "core/float16.h"

// One clone per vector width, chosen at program start. Not with sanitizers, whose start-up code runs too late for that
// choice, nor with clang 14, which lacks the attribute.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define ORRERY_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ORRERY_CLONES
#endif

namespace orrery::exec {
namespace {

// The inner loops have a constant trip count, so that GCC vectorizes them at -O2, too, where it does not vectorize
// loops of unknown length. `ivdep` is valid because out is one of the operands or disjoint from both.
constexpr std::int64_t kBlock = 16;

// NOLINTBEGIN(bugprone-macro-parentheses): `type` is a type.
#define ORRERY_COMBINE(name, type, expression)                                                       \
    ORRERY_CLONES void name(const type* left, const type* right, type* out, std::int64_t elements) { \
        for (; elements >= kBlock; elements -= kBlock) {                                             \
            _Pragma("GCC ivdep") for (std::int64_t j = 0; j < kBlock; ++j) out[j] = (expression);    \
            left += kBlock;                                                                          \
            right += kBlock;                                                                         \
            out += kBlock;                                                                           \
        }                                                                                            \
        for (std::int64_t j = 0; j < elements; ++j) out[j] = (expression);                           \
    }

// NOLINTEND(bugprone-macro-parentheses)

template <typename T>
constexpr T wrapped_sum(T left, T right) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(left) + static_cast<Unsigned>(right));
}

/// Whether the maximum is the left operand. NaN counts as the larger operand.
template <typename T>
constexpr bool left_is_max(T left, T right) {
    return left >= right || left != left;
}

constexpr std::uint16_t max_of_bf16(std::uint16_t left, std::uint16_t right) {
    return left_is_max(from_bf16(left), from_bf16(right)) ? left : right;
}

constexpr std::uint16_t max_of_fp16(std::uint16_t left, std::uint16_t right) {
    return left_is_max(from_fp16(left), from_fp16(right)) ? left : right;
}

ORRERY_COMBINE(sum_fp32, float, left[j] + right[j])
ORRERY_COMBINE(sum_fp64, double, left[j] + right[j])
ORRERY_COMBINE(sum_bf16, std::uint16_t, to_bf16(from_bf16(left[j]) + from_bf16(right[j])))
ORRERY_COMBINE(sum_fp16, std::uint16_t, to_fp16(from_fp16(left[j]) + from_fp16(right[j])))
ORRERY_COMBINE(sum_int32, std::int32_t, wrapped_sum(left[j], right[j]))
ORRERY_COMBINE(sum_int64, std::int64_t, wrapped_sum(left[j], right[j]))
ORRERY_COMBINE(max_fp32, float, left_is_max(left[j], right[j]) ? left[j] : right[j])
ORRERY_COMBINE(max_fp64, double, left_is_max(left[j], right[j]) ? left[j] : right[j])
ORRERY_COMBINE(max_bf16, std::uint16_t, max_of_bf16(left[j], right[j]))
ORRERY_COMBINE(max_fp16, std::uint16_t, max_of_fp16(left[j], right[j]))
ORRERY_COMBINE(max_int32, std::int32_t, left[j] < right[j] ? right[j] : left[j])
ORRERY_COMBINE(max_int64, std::int64_t, left[j] < right[j] ? right[j] : left[j])

#undef ORRERY_COMBINE

template <typename T>
void apply(void (*kernel)(const T*, const T*, T*, std::int64_t), const std::byte* left, const std::byte* right,
           std::byte* out, std::int64_t elements) {
    kernel(reinterpret_cast<const T*>(left), reinterpret_cast<const T*>(right), reinterpret_cast<T*>(out), elements);
}

}  // namespace

bool can_combine(DType dtype) {
    switch (dtype) {
        case DType::fp32:
        case DType::fp64:
        case DType::bf16:
        case DType::fp16:
        case DType::int32:
        case DType::int64:
            return true;
        case DType::uint8:
        case DType::fp8:
        case DType::fp4:
        case DType::tf32:
            return false;
    }
    return false;
}

void combine(program::ReduceOp op, DType dtype, const std::byte* left, const std::byte* right, std::byte* out,
             std::int64_t elements) {
    const bool sum = op != program::ReduceOp::max;
    switch (dtype) {
        case DType::fp32:
            return apply<float>(sum ? sum_fp32 : max_fp32, left, right, out, elements);
        case DType::fp64:
            return apply<double>(sum ? sum_fp64 : max_fp64, left, right, out, elements);
        case DType::bf16:
            return apply<std::uint16_t>(sum ? sum_bf16 : max_bf16, left, right, out, elements);
        case DType::fp16:
            return apply<std::uint16_t>(sum ? sum_fp16 : max_fp16, left, right, out, elements);
        case DType::int32:
            return apply<std::int32_t>(sum ? sum_int32 : max_int32, left, right, out, elements);
        case DType::int64:
            return apply<std::int64_t>(sum ? sum_int64 : max_int64, left, right, out, elements);
        case DType::uint8:
        case DType::fp8:
        case DType::fp4:
        case DType::tf32:
            break;
    }
    throw_bug(__FILE__, __LINE__, "can_combine", "no reduction for " + std::string(name_of(dtype)));
}

void make_mean(DType dtype, std::byte* sums, std::int64_t elements, int members) {
    const auto each = [&](auto* values, const auto& divided) {
        for (std::int64_t i = 0; i < elements; ++i) values[i] = divided(values[i]);
    };
    const auto by = static_cast<float>(members);
    switch (dtype) {
        case DType::fp32:
            return each(reinterpret_cast<float*>(sums), [by](float sum) { return sum / by; });
        case DType::fp64:
            return each(reinterpret_cast<double*>(sums), [members](double sum) { return sum / members; });
        case DType::bf16:
            return each(reinterpret_cast<std::uint16_t*>(sums),
                        [by](std::uint16_t sum) { return to_bf16(from_bf16(sum) / by); });
        case DType::fp16:
            return each(reinterpret_cast<std::uint16_t*>(sums),
                        [by](std::uint16_t sum) { return to_fp16(from_fp16(sum) / by); });
        case DType::int32:
        case DType::int64:
        case DType::uint8:
        case DType::fp8:
        case DType::fp4:
        case DType::tf32:
            break;
    }
    throw_bug(__FILE__, __LINE__, "DType", "no mean of " + std::string(name_of(dtype)));
}

}  // namespace orrery::exec
