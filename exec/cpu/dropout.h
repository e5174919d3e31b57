// Dropout. A mask element is a function of values that are the same under every plan: the training's seed, the layer,
// the mask's name, the sample's index in the whole training (which determines the step), the position, and the column;
// for attention probabilities, head and key position take the place of the column.
#pragma once

#include <string_view>

#include "exec/operands.h"
#include "kernels/dropout.h"

namespace orrery::exec {

/// The mask of the attention probabilities has the same name whether it is stored or recomputed.
inline constexpr std::string_view kAttentionMask = "attention.dropout.mask";

/// The dropout arguments of an operator. Throws BugError if there is dropout but not one sample index per sample.
[[nodiscard]] kernels::Dropout dropout_of(const models::Operator& op, const OperatorContext& context,
                                          std::string_view mask);

/// With a mask, dropout is applied to the branch before it is added to the residual. An operator with a single input
/// only applies dropout.
void run_residual_add(const models::Operator& op, const Operands& o, const OperatorPointers& at,
                      const OperatorContext& context);
void run_residual_add_backward(const models::Operator& op, const Operands& o, const OperatorContext& context);

}  // namespace orrery::exec
