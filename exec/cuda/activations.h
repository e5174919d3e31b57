// Activations and gates on an NVIDIA GPU. Those of experts have the counts of their rows as one more operand.
#pragma once

#include "exec/cuda/device_operands.h"
#include "kernels/cuda/stream.h"

namespace orrery::exec {

/// relu_*, gelu_*, swiglu_*
void run_activation(kernels::cuda::StreamHandle stream, const models::Operator& op, const DeviceOperands& o,
                    const OperatorPointers& at);
/// gate_rows_*
void run_gate(kernels::cuda::StreamHandle stream, const models::Operator& op, const DeviceOperands& o);

}  // namespace orrery::exec
