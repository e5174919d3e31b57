// The element-wise combination in reducing collectives.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "sim/program/program.h"

namespace orrery::exec {

/// True for the element types that `combine` supports: fp32, fp64, bf16, fp16, int32, int64.
[[nodiscard]] bool can_combine(DType dtype);

/// out[i] = left[i] + right[i] for sum and mean, max(left[i], right[i]) for max. `out` may be `left` or `right`;
/// otherwise the ranges are disjoint. bf16 and fp16 are combined in fp32 and rounded to nearest even; integers wrap
/// around. If one operand is NaN, so is the result, also for max. The order of the operands matters only where IEEE
/// leaves the result open (which NaN; which zero for max). Members of a collective use the same order, so that their
/// results are bitwise equal.
void combine(program::ReduceOp op, DType dtype, const std::byte* left, const std::byte* right, std::byte* out,
             std::int64_t elements);

/// Turns sums of `members` values into means. Floating-point types only; 16-bit types are divided in fp32 and rounded.
void make_mean(DType dtype, std::byte* sums, std::int64_t elements, int members);

}  // namespace orrery::exec
