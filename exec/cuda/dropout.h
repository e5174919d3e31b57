// Residual sums with and without dropout, on GPUs; see exec/cpu/dropout.h.
#pragma once

#include "exec/cuda/device_operands.h"
#include "kernels/cuda/stream.h"

namespace orrery::exec {

void run_residual_add(kernels::cuda::StreamHandle stream, const models::Operator& op, const DeviceOperands& o,
                      const OperatorPointers& at, const OperatorContext& context);
void run_residual_add_backward(kernels::cuda::StreamHandle stream, const models::Operator& op, const DeviceOperands& o,
                               const OperatorContext& context);

}  // namespace orrery::exec
