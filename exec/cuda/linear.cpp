#include "exec/cuda/linear.h"

#include "exec/cuda/float_operands.h"
#include "exec/operator_shapes.h"
#include "kernels/cuda/flat.h"

namespace orrery::exec {

void run_linear(kernels::cuda::StreamHandle stream, const models::Operator& op, const Operands& o,
                const OperatorPointers& at, kernels::cuda::Products& products) {
    check_columns(op, at);
    const kernels::LinearShape shape = linear_shape(op);
    const FloatOperands f(o, at);
    switch (op.kind) {
        case models::OpKind::linear_forward:
            return products.linear_forward(stream, shape, f.rows_in(0), f.in(1), f.optional_in(2),
                                           f.rows_out(0, op.to_column));
        case models::OpKind::linear_backward_input:
            return products.linear_backward_input(stream, shape, f.rows_in(0, op.from_column), f.in(1), f.rows_out(0));
        default:
            return products.linear_backward_weight(stream, shape, f.rows_in(0, op.from_column), f.rows_in(1), f.out(0),
                                                   f.optional_out(1));
    }
}

void run_bias_backward(kernels::cuda::StreamHandle stream, const models::Operator& op, const Operands& o,
                       const OperatorPointers& at) {
    const FloatOperands f(o, at);
    kernels::cuda::bias_backward(stream, op.rows, op.n, {f.in(0), op.n}, f.out(0));
}

}  // namespace orrery::exec
