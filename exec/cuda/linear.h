// linear_* and bias_backward on an NVIDIA GPU.
#pragma once

#include "exec/cuda/device_operands.h"
#include "kernels/cuda/products.h"

namespace orrery::exec {

/// A GEMM may read and write some columns of wider rows.
void run_linear(kernels::cuda::StreamHandle stream, const models::Operator& op, const DeviceOperands& o,
                const OperatorPointers& at, kernels::cuda::Products& products);
void run_bias_backward(kernels::cuda::StreamHandle stream, const models::Operator& op, const DeviceOperands& o);

}  // namespace orrery::exec
