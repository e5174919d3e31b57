#include "exec/cuda/dropout.h"

#include <vector>

#include "core/error.h"
#include "exec/operator_rows.h"
#include "kernels/cuda/kernels.h"

namespace orrery::exec {

namespace k = kernels::cuda;

void run_residual_add(k::StreamHandle stream, const models::Operator& op, const DeviceOperands& o,
                      const OperatorPointers& at, const OperatorContext& context) {
    if (at.out[1] == nullptr) {
        return k::residual_add(stream, op.rows, op.k, o.floats_in(0), o.floats_in(1), o.optional_floats_in(2),
                               o.optional_floats_in(3), o.floats_out(0));
    }
    ORRERY_CHECK(context.dropout > 0, "a mask where nothing is dropped");
    const std::vector<kernels::PositionRun> positions = positions_of(op, context);
    const kernels::DropoutRows rows{
        .positions = positions, .width = op.k, .dropout = dropout_of(op, context, at.mask_name)};
    const bool alone = o.optional_in(1) == nullptr;
    k::residual_add_dropout(stream, rows, alone ? k::ConstFloats{} : o.floats_in(0), o.floats_in(alone ? 0 : 1),
                            o.optional_floats_in(2), o.optional_floats_in(3), o.floats_out(0), o.mask_out(1));
}

void run_residual_add_backward(k::StreamHandle stream, const models::Operator& op, const DeviceOperands& o,
                               const OperatorContext& context) {
    ORRERY_CHECK(context.dropout > 0, "a mask where nothing is dropped");
    k::dropout_backward(stream, op.rows * op.k, context.dropout, o.floats_in(0), o.mask_in(1), o.floats_out(0));
}

}  // namespace orrery::exec
