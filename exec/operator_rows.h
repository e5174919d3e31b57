// Which tokens and positions an operator's rows stand for: the same wherever the kernels run.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/operator_call.h"
#include "kernels/views.h"
#include "models/operator.h"

namespace orrery::exec {

/// Positions whose tokens a context-parallel rank holds: the chunks r and 2c-1-r of 2c.
[[nodiscard]] std::vector<kernels::PositionRun> positions_of_rank(std::int64_t sequence, std::int64_t ranks,
                                                                  std::int64_t rank);
/// Those of the operator's rows: all of this context-parallel rank's, or its tensor-parallel share.
[[nodiscard]] std::vector<kernels::PositionRun> positions_of(const models::Operator& op,
                                                             const OperatorContext& context);
/// load_tokens, load_targets: one token for each of the operator's rows. Throws BugError when the context has no data
/// for it.
void load_rows(const models::Operator& op, const OperatorContext& context, std::int32_t* out);

}  // namespace orrery::exec
