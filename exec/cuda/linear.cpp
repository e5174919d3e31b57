#include "exec/cuda/linear.h"

#include "exec/cuda/device_operands.h"
#include "exec/operator_shapes.h"
#include "kernels/cuda/flat.h"

namespace orrery::exec {

void run_linear(kernels::cuda::StreamHandle stream, const models::Operator& op, const DeviceOperands& o,
                const OperatorPointers& at, kernels::cuda::Products& products) {
    check_columns(op, at);
    const kernels::LinearShape shape = linear_shape(op);
    switch (op.kind) {
        case models::OpKind::linear_forward:
            return products.linear_forward(stream, shape, o.rows_in(0), o.floats_in(1), o.optional_floats_in(2),
                                           o.rows_out(0, op.to_column), o.optional_floats_out(1));
        case models::OpKind::linear_backward_input:
            return products.linear_backward_input(stream, shape, o.rows_in(0, op.from_column), o.floats_in(1),
                                                  o.rows_out(0));
        default:
            return products.linear_backward_weight(stream, shape, o.rows_in(0, op.from_column), o.rows_in(1),
                                                   o.floats_out(0), o.optional_floats_out(1));
    }
}

void run_bias_backward(kernels::cuda::StreamHandle stream, const models::Operator& op, const DeviceOperands& o) {
    kernels::cuda::bias_backward(stream, op.rows, op.n, {o.floats_in(0), op.n}, o.floats_out(0));
}

}  // namespace orrery::exec
