// Expert operators on an NVIDIA GPU. Only the device knows the numbers of rows; Operator::rows is the plan's estimate.
#pragma once

#include "exec/operands.h"
#include "kernels/cuda/row_count.h"
#include "kernels/cuda/stream.h"

namespace orrery::exec {

/// The rows that input operand 0 has memory for, of which the sum of input operand `counts` is in use; Operator::rows
/// if that operand is absent.
[[nodiscard]] kernels::cuda::RowCount counted_rows(const models::Operator& op, const OperatorPointers& at,
                                                   std::size_t counts);

/// `correction`: of the experts' scores, in device memory, or null.
void run_router(kernels::cuda::StreamHandle stream, const models::Operator& op, const Operands& o,
                const OperatorPointers& at, const models::ModelSpec& model, const float* correction);
/// permute_*, combine_*
void run_permutation(kernels::cuda::StreamHandle stream, const models::Operator& op, const Operands& o,
                     const OperatorPointers& at, const models::ModelSpec& model);
/// group_by_expert, group_by_source
void run_regrouping(kernels::cuda::StreamHandle stream, const models::Operator& op, const Operands& o,
                    const OperatorPointers& at);
/// expert_linear_*
void run_expert_linear(kernels::cuda::StreamHandle stream, const models::Operator& op, const Operands& o,
                       const OperatorPointers& at);

}  // namespace orrery::exec
