// Operators on everything that a rank updates. Their operands are whole buffers; UpdateRange gives the ranges in them.
#pragma once

#include "exec/operands.h"

namespace orrery::exec {

/// AdamW, or Adam if the context has no decoupled decay.
void run_adamw(const models::Operator& op, const Operands& o, const OperatorContext& context);
void run_sgd_momentum(const models::Operator& op, const Operands& o, const OperatorContext& context);
/// Copies gradients to host memory for the update there, or updated parameters back to the device.
void run_offloaded_copy(const models::Operator& op, const Operands& o, const OperatorContext& context);
void run_gradient_norm(const Operands& o, const OperatorContext& context);
void run_gradient_scale(const Operands& o, const OperatorContext& context);

}  // namespace orrery::exec
