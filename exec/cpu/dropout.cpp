#include "exec/cpu/dropout.h"

#include <vector>

#include "core/error.h"
#include "exec/operator_rows.h"
#include "kernels/kernels.h"

namespace orrery::exec {

void run_residual_add(const models::Operator& op, const Operands& o, const OperatorPointers& at,
                      const OperatorContext& context) {
    if (at.out[1] == nullptr) {
        kernels::residual_add(op.rows, op.k, o.in(0), o.in(1), o.optional_in(2), o.out(0));
        if (o.optional_in(3) != nullptr) kernels::bias_add(op.rows, op.k, o.out(0), o.in(3), o.out(0));
        return;
    }
    ORRERY_CHECK(context.dropout > 0, "a mask where nothing is dropped");
    const std::vector<kernels::PositionRun> positions = positions_of(op, context);
    const kernels::DropoutRows rows{
        .positions = positions, .width = op.k, .dropout = dropout_of(op, context, at.mask_name)};
    const bool alone = o.optional_in(1) == nullptr;
    kernels::residual_add_dropout(rows, alone ? nullptr : o.in(0), o.in(alone ? 0 : 1), o.optional_in(2),
                                  o.optional_in(3), o.out(0), o.mask_out(1));
}

void run_residual_add_backward(const models::Operator& op, const Operands& o, const OperatorContext& context) {
    ORRERY_CHECK(context.dropout > 0, "a mask where nothing is dropped");
    kernels::dropout_backward(op.rows * op.k, context.dropout, o.in(0), o.mask_in(1), o.out(0));
}

}  // namespace orrery::exec
