// The tokens and positions of an operator's rows, the same for every backend.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/operator_call.h"
#include "kernels/views.h"
#include "models/operator.h"

namespace orrery::exec {

/// The positions of context-parallel rank r of c: chunks r and 2c-1-r of the 2c chunks of the sequence.
[[nodiscard]] std::vector<kernels::PositionRun> positions_of_rank(std::int64_t sequence, std::int64_t ranks,
                                                                  std::int64_t rank);
/// The positions of the operator's rows: all positions of this context-parallel rank, or, if the operator is
/// sequence-sharded, the share of this tensor-parallel rank.
[[nodiscard]] std::vector<kernels::PositionRun> positions_of(const models::Operator& op,
                                                             const OperatorContext& context);
/// For load_tokens and load_targets: writes one token for each of the operator's rows. Throws BugError if the context
/// has no data for them.
void load_rows(const models::Operator& op, const OperatorContext& context, std::int32_t* out);

}  // namespace orrery::exec
