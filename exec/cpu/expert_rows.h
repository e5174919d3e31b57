// Expert operators: the router, the permutation of rows, the grouped GEMMs. The number of rows is known only when they
// run; Operator::rows is the plan's estimate.
#pragma once

#include "exec/operands.h"

namespace orrery::exec {

/// The number of rows: the sum of input operand `counts`, or Operator::rows if that operand is absent.
[[nodiscard]] std::int64_t rows_of(const models::Operator& op, const OperatorPointers& at, std::size_t counts);

void run_router(const models::Operator& op, const Operands& o, const models::ModelSpec& model);
/// permute_*, combine_*
void run_permutation(const models::Operator& op, const Operands& o, const models::ModelSpec& model);
/// group_by_expert, group_by_source
void run_regrouping(const models::Operator& op, const Operands& o);
/// expert_linear_*
void run_expert_linear(const models::Operator& op, const Operands& o);

}  // namespace orrery::exec
