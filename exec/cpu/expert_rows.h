// Operators of experts: the router, the order of rows, the grouped products. How many rows there are is known only when
// they run; until then a plan's figure stands for them.
#pragma once

#include "exec/operands.h"

namespace orrery::exec {

/// Rows of the operator: as operand `counts` of its inputs says, or, where it is absent, as the operator does.
[[nodiscard]] std::int64_t rows_of(const models::Operator& op, const OperatorPointers& at, std::size_t counts);

void run_router(const models::Operator& op, const Operands& o, const models::ModelSpec& model);
/// permute_*, combine_*
void run_permutation(const models::Operator& op, const Operands& o, const models::ModelSpec& model);
/// group_by_expert, group_by_source
void run_regrouping(const models::Operator& op, const Operands& o);
/// expert_linear_*
void run_expert_linear(const models::Operator& op, const Operands& o);

}  // namespace orrery::exec
