// Operators on everything that a rank updates, on an NVIDIA GPU. Their operands are whole buffers; UpdateRange gives
// the ranges in them.
#pragma once

#include "exec/cuda/device_operands.h"
#include "kernels/cuda/stream.h"

namespace orrery::exec {

/// AdamW, Adam or SGD with momentum, of states in device memory.
void run_update(kernels::cuda::StreamHandle stream, const models::Operator& op, const DeviceOperands& o,
                const OperatorContext& context);
/// Copies gradients to host memory for the update there, or updated parameters back to the device.
void run_offloaded_copy(kernels::cuda::StreamHandle stream, const models::Operator& op, const DeviceOperands& o,
                        const OperatorContext& context);
/// `partial`: kernels::cuda::kPartialSums numbers in device memory.
void run_gradient_norm(kernels::cuda::StreamHandle stream, const DeviceOperands& o, const OperatorContext& context,
                       double* partial);
void run_gradient_scale(kernels::cuda::StreamHandle stream, const DeviceOperands& o, const OperatorContext& context);

}  // namespace orrery::exec
