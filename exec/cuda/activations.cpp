#include "exec/cuda/activations.h"

#include "exec/cuda/device_operands.h"
#include "exec/cuda/expert_rows.h"
#include "kernels/cuda/activations.h"

namespace orrery::exec {

using models::Operator;
using models::OpKind;

void run_activation(kernels::cuda::StreamHandle stream, const Operator& op, const DeviceOperands& o,
                    const OperatorPointers& at) {
    namespace k = kernels::cuda;
    switch (op.kind) {
        case OpKind::gelu_forward:
            return k::gelu_forward(stream, counted_rows(op, at, 1), op.n, o.floats_in(0), o.floats_out(0));
        case OpKind::gelu_backward:
            return k::gelu_backward(stream, counted_rows(op, at, 2), op.n, o.floats_in(0), o.floats_in(1),
                                    o.floats_out(0));
        case OpKind::relu_forward:
            return k::relu_forward(stream, counted_rows(op, at, 1), op.n, o.floats_in(0), o.floats_out(0));
        case OpKind::relu_backward:
            return k::relu_backward(stream, counted_rows(op, at, 2), op.n, o.floats_in(0), o.floats_in(1),
                                    o.floats_out(0));
        case OpKind::swiglu_forward:
            return k::swiglu_forward(stream, counted_rows(op, at, 1), op.n, o.floats_in(0), o.floats_out(0));
        default:
            return k::swiglu_backward(stream, counted_rows(op, at, 2), op.n, o.floats_in(0), o.floats_in(1),
                                      o.floats_out(0));
    }
}

void run_gate(kernels::cuda::StreamHandle stream, const Operator& op, const DeviceOperands& o) {
    namespace k = kernels::cuda;
    if (op.kind == OpKind::gate_rows_forward) {
        return k::sigmoid_scale_forward(stream, op.rows, op.k, o.floats_in(0), o.floats_in(1), o.floats_out(0));
    }
    k::sigmoid_scale_backward(stream, op.rows, op.k, o.floats_in(0), o.floats_in(1), o.floats_in(2), o.floats_out(0),
                              o.floats_out(1));
}

}  // namespace orrery::exec
