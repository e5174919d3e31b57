#include "exec/transport/reduce.h"

#include <string>

#include "core/error.h"

// One clone per vector width, chosen when the program starts. Sanitizers run their own start-up code too late for that
// choice, and clang 14 has no such attribute.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define ORRERY_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ORRERY_CLONES
#endif

namespace orrery::exec {
namespace {

// The inner loops have a constant length so that they become vector instructions at -O2 as well, where GCC leaves loops
// of unknown length alone. `ivdep` holds because out is one of the operands or disjoint from both.
constexpr std::int64_t kBlock = 16;

// NOLINTBEGIN(bugprone-macro-parentheses): `type` is a type.
#define ORRERY_COMBINE(name, type, expression)                                                        \
    ORRERY_CLONES void name(const type* left, const type* right, type* out, std::int64_t elements) {  \
        std::int64_t i = 0;                                                                           \
        for (; i + kBlock <= elements; i += kBlock) {                                                 \
            _Pragma("GCC ivdep") for (std::int64_t j = i; j < i + kBlock; ++j) out[j] = (expression); \
        }                                                                                             \
        for (std::int64_t j = i; j < elements; ++j) out[j] = (expression);                            \
    }

// NOLINTEND(bugprone-macro-parentheses)

ORRERY_COMBINE(sum_fp32, float, left[j] + right[j])
ORRERY_COMBINE(sum_fp64, double, left[j] + right[j])
ORRERY_COMBINE(sum_int32, std::int32_t,
               static_cast<std::int32_t>(static_cast<std::uint32_t>(left[j]) + static_cast<std::uint32_t>(right[j])))
ORRERY_COMBINE(max_fp32, float, left[j] < right[j] ? right[j] : left[j])
ORRERY_COMBINE(max_fp64, double, left[j] < right[j] ? right[j] : left[j])
ORRERY_COMBINE(max_int32, std::int32_t, left[j] < right[j] ? right[j] : left[j])

#undef ORRERY_COMBINE

template <typename T>
void apply(void (*kernel)(const T*, const T*, T*, std::int64_t), const std::byte* left, const std::byte* right,
           std::byte* out, std::int64_t elements) {
    kernel(reinterpret_cast<const T*>(left), reinterpret_cast<const T*>(right), reinterpret_cast<T*>(out), elements);
}

}  // namespace

bool can_combine(DType dtype) {
    return dtype == DType::fp32 || dtype == DType::fp64 || dtype == DType::int32;
}

void combine(program::ReduceOp op, DType dtype, const std::byte* left, const std::byte* right, std::byte* out,
             std::int64_t elements) {
    const bool sum = op == program::ReduceOp::sum;
    ORRERY_CHECK(can_combine(dtype), "no reduction for " + std::string(name_of(dtype)));
    if (dtype == DType::fp32) {
        apply<float>(sum ? sum_fp32 : max_fp32, left, right, out, elements);
    } else if (dtype == DType::fp64) {
        apply<double>(sum ? sum_fp64 : max_fp64, left, right, out, elements);
    } else {
        apply<std::int32_t>(sum ? sum_int32 : max_int32, left, right, out, elements);
    }
}

}  // namespace orrery::exec
