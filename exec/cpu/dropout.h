// Residual sums with and without dropout.
#pragma once

#include "exec/operands.h"

namespace orrery::exec {

/// With a mask, dropout is applied to the branch before it is added to the residual. An operator with a single input
/// only applies dropout.
void run_residual_add(const models::Operator& op, const Operands& o, const OperatorPointers& at,
                      const OperatorContext& context);
void run_residual_add_backward(const models::Operator& op, const Operands& o, const OperatorContext& context);

}  // namespace orrery::exec
