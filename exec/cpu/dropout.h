// Dropout. What a mask is drawn from is the same under every plan: the training's seed, the layer, the name of the mask
// in it, the sample's index in the whole training (in which the step is contained), the position, and the place in the
// row, or of attention's probabilities the head and the key's position.
#pragma once

#include <string_view>

#include "exec/operands.h"
#include "kernels/dropout.h"

namespace orrery::exec {

/// The mask of attention's probabilities, where it is not stored, by the name that it has where it is.
inline constexpr std::string_view kAttentionMask = "attention.dropout.mask";

/// Of the operator at hand. Throws BugError when dropout is asked for without an index for each sample.
[[nodiscard]] kernels::Dropout dropout_of(const models::Operator& op, const OperatorContext& context,
                                          std::string_view mask);

/// Where there is a mask, what comes over the branch is dropped before it is added; an operator with but one input
/// drops that.
void run_residual_add(const models::Operator& op, const Operands& o, const OperatorPointers& at,
                      const OperatorContext& context);
void run_residual_add_backward(const models::Operator& op, const Operands& o, const OperatorContext& context);

}  // namespace orrery::exec
