// Operators that do the work of two kinds in one kernel (models::Operator::is_fused), as the two operators that a
// backend without such a kernel runs one after the other.
#pragma once

#include <array>

#include "exec/operator_call.h"

namespace orrery::exec {

/// An operator with its memory that is no part of a Program.
struct OperatorPart {
    models::Operator op;
    OperatorPointers at;
};

/// In this order: a residual sum and its norm, a product and its GELU, or the maximum and the sum of the loss. Their
/// results are those of the fused operator, up to rounding. FLOPs and bytes are not set.
[[nodiscard]] std::array<OperatorPart, 2> parts_of_fused(const models::Operator& op, const OperatorPointers& at);

}  // namespace orrery::exec
