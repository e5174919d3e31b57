// Operators on a part of the sequence, on GPUs; see exec/cpu/sequence_parts.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "exec/cuda/device_operands.h"
#include "exec/cuda/tables.h"
#include "kernels/cuda/stream.h"

namespace orrery::exec {

void run_position_forward(kernels::cuda::StreamHandle stream, const models::Operator& op, const DeviceOperands& o,
                          const OperatorContext& context);
void run_position_backward(kernels::cuda::StreamHandle stream, const models::Operator& op, const DeviceOperands& o,
                           const OperatorContext& context);

/// rope_forward, rope_backward
void run_rotation(kernels::cuda::StreamHandle stream, const models::Operator& op, const DeviceOperands& o,
                  const OperatorPointers& at, const OperatorContext& context, DeviceTables& tables);
/// `scratch` returns memory of so many bytes.
void run_attention(kernels::cuda::StreamHandle stream, const models::Operator& op, const DeviceOperands& o,
                   const OperatorPointers& at, const OperatorContext& context, DeviceTables& tables,
                   const std::function<std::byte*(std::int64_t bytes)>& scratch);
void run_attention_merge(kernels::cuda::StreamHandle stream, const models::Operator& op, const DeviceOperands& o);

/// copy_columns, add_columns
void run_columns(kernels::cuda::StreamHandle stream, const models::Operator& op, const DeviceOperands& o,
                 const OperatorPointers& at);
/// repeat_heads, sum_repeated_heads
void run_repetition(kernels::cuda::StreamHandle stream, const models::Operator& op, const DeviceOperands& o,
                    const OperatorPointers& at);
void run_relay(kernels::cuda::StreamHandle stream, const models::Operator& op, const DeviceOperands& o,
               const OperatorPointers& at, const OperatorContext& context);

}  // namespace orrery::exec
