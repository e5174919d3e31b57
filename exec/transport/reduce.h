// The element-wise combination inside a reducing collective.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "sim/program/program.h"

namespace orrery::exec {

/// True for the element types that `combine` knows: fp32, fp64, bf16, fp16, int32, int64.
[[nodiscard]] bool can_combine(DType dtype);

/// out[i] = left[i] (+ or max) right[i]; on the way to a mean, +. `out` may be `left` or `right`; otherwise the ranges
/// are disjoint. bf16 and fp16 are combined in fp32 and rounded to nearest even; integers wrap around. If one operand
/// is NaN, so is the result, of a max as well. The order of the operands matters only for what IEEE leaves open (which
/// NaN, which zero of a max); members of a collective call it with the same order so that their results agree in every
/// bit.
void combine(program::ReduceOp op, DType dtype, const std::byte* left, const std::byte* right, std::byte* out,
             std::int64_t elements);

/// Makes a mean of the sum of `members` values. Floating-point types only; 16-bit ones are divided in fp32 and rounded.
void make_mean(DType dtype, std::byte* sums, std::int64_t elements, int members);

}  // namespace orrery::exec
