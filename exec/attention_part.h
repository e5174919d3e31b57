// The arguments of attention kernels, the same for every backend.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "exec/operator_call.h"
#include "kernels/attention.h"
#include "models/operator.h"

namespace orrery::exec {

/// The part of attention that an operator computes: this rank's queries over its own keys, another rank's, or all.
/// Holds the runs that `part` points to.
struct OperatorAttention {
    OperatorAttention(const models::Operator& op, const OperatorContext& context);
    OperatorAttention(const OperatorAttention&) = delete;
    OperatorAttention& operator=(const OperatorAttention&) = delete;
    std::vector<kernels::PositionRun> queries, keys;
    std::vector<float> slopes;    // ALiBi's; empty for models with other positions
    kernels::AttentionPart part;  // without alibi_slopes, whose memory is the backend's
};

/// The columns of keys and values: in the rows of the queries, or in a slot of their own.
struct KeyColumns {
    std::size_t slot = 0;       // place among the operands
    std::int64_t k = 0, v = 0;  // first columns
    std::int64_t width = 0;     // of a row
};
/// `own` is the operand for keys and values alone, which may be absent, and `shared` the one that begins with queries.
/// Throws BugError if the rows are too narrow.
[[nodiscard]] KeyColumns key_columns(const models::Operator& op, const std::array<void*, models::kMaxOperands>& slots,
                                     const std::array<std::int64_t, models::kMaxOperands>& widths, std::size_t shared,
                                     std::size_t own);

}  // namespace orrery::exec
