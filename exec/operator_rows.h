// The tokens and positions of an operator's rows, the same for every backend.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "exec/operator_call.h"
#include "kernels/dropout.h"
#include "kernels/kernels.h"
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
/// Calls kernel(shape, offset of the first row) for each run of the operator's positions.
template <typename Kernel>
void for_each_run(const models::Operator& op, const OperatorContext& context, const Kernel& kernel) {
    std::int64_t row = 0;
    for (const kernels::PositionRun& run : positions_of(op, context)) {
        const std::int64_t rows = run.count * op.micro_batch;
        kernel(kernels::PositionShape{rows, op.k, op.micro_batch, run.first}, row * op.k);
        row += rows;
    }
}

// Dropout. A mask element is a function of values that are the same under every plan: the training's seed, the layer,
// the mask's name, the sample's index in the whole training (which determines the step), the position, and the column;
// for attention probabilities, head and key position take the place of the column.

/// The mask of the attention probabilities has the same name whether it is stored or recomputed.
inline constexpr std::string_view kAttentionMask = "attention.dropout.mask";
/// The dropout arguments of an operator. Throws BugError if there is dropout but not one sample index per sample.
[[nodiscard]] kernels::Dropout dropout_of(const models::Operator& op, const OperatorContext& context,
                                          std::string_view mask);

/// For load_tokens and load_targets: writes one token for each of the operator's rows. Throws BugError if the context
/// has no data for them.
void load_rows(const models::Operator& op, const OperatorContext& context, std::int32_t* out);

}  // namespace orrery::exec
