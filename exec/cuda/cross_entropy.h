// cross_entropy_* on an NVIDIA GPU.
#pragma once

#include "exec/cuda/device_operands.h"
#include "kernels/cuda/stream.h"

namespace orrery::exec {

void run_cross_entropy(kernels::cuda::StreamHandle stream, const models::Operator& op, const DeviceOperands& o,
                       const OperatorContext& context);

}  // namespace orrery::exec
