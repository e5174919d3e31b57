// Operators on all that a rank updates: their operands are whole buffers, of which UpdateRange says what to touch.
#pragma once

#include "exec/operands.h"

namespace orrery::exec {

/// adamw, and adam where the context says that decay is part of the gradient
void run_adamw(const models::Operator& op, const Operands& o, const OperatorContext& context);
void run_sgd_momentum(const models::Operator& op, const Operands& o, const OperatorContext& context);
/// Gradients to the host's update, and parameters back.
void run_offloaded_copy(const models::Operator& op, const Operands& o, const OperatorContext& context);
void run_gradient_norm(const Operands& o, const OperatorContext& context);
void run_gradient_scale(const Operands& o, const OperatorContext& context);

}  // namespace orrery::exec
