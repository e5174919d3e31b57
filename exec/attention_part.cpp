#include "exec/attention_part.h"

#include <cmath>
#include <string>

#include "core/error.h"
#include "exec/operator_rows.h"
#include "kernels/rotary.h"

namespace orrery::exec {

using models::Operator;

OperatorAttention::OperatorAttention(const Operator& op, const OperatorContext& context) {
    const std::int64_t cp = context.cp, rank = context.cp_index, sequence = op.queries * cp;
    std::int64_t first_head = context.tp_index * op.heads;
    switch (op.keys) {
        case models::KeyPart::own:
            queries = keys = {{0, op.sequence}};
            // Ulysses: the context-parallel ranks split the heads of the tensor-parallel rank.
            if (cp > 1) first_head = (context.tp_index * cp + rank) * op.heads;
            break;
        case models::KeyPart::gathered:
            queries = positions_of_rank(sequence, cp, rank);
            for (std::int64_t other = 0; other < cp; ++other) {
                for (const kernels::PositionRun& run : positions_of_rank(sequence, cp, other)) keys.push_back(run);
            }
            break;
        case models::KeyPart::ring:
            queries = positions_of_rank(sequence, cp, rank);
            keys = positions_of_rank(sequence, cp, (rank - op.ring_step + cp) % cp);
            break;
    }
    const models::ModelSpec& model = *context.model;
    part = {.queries = queries,
            .keys = keys,
            .micro_batch = op.micro_batch,
            .heads = op.heads,
            .kv_heads = op.kv_heads,
            .head_dim = op.head_dim,
            .value_dim = op.value_dim,
            .causal = model.causal,
            .sliding_window = model.sliding_window,
            .dropout = dropout_of(op, context, kAttentionMask),
            .first_head = first_head};
    const models::ModelSpec::RopeScaling& scaling = model.rope_scaling;
    if (scaling.type == "yarn" && scaling.mscale_all_dim > 0) {
        const double magnitude = kernels::yarn_magnitude(scaling.factor, scaling.mscale_all_dim);
        part.scale = magnitude * magnitude / std::sqrt(static_cast<double>(op.head_dim));
    }
    if (model.position != models::PositionKind::alibi) return;
    slopes.resize(static_cast<std::size_t>(op.heads));
    kernels::alibi_slopes(model.heads, first_head, op.heads, slopes.data());
}

KeyColumns key_columns(const Operator& op, const std::array<void*, models::kMaxOperands>& slots,
                       const std::array<std::int64_t, models::kMaxOperands>& widths, std::size_t shared,
                       std::size_t own) {
    const std::int64_t k = op.kv_heads * op.head_dim;
    const std::int64_t v = op.kv_heads * (op.value_dim > 0 ? op.value_dim : op.head_dim);
    const bool apart = slots.at(own) != nullptr;
    const std::int64_t first = apart ? 0 : op.heads * op.head_dim;
    const KeyColumns columns{apart ? own : shared, first, first + k, widths.at(apart ? own : shared)};
    ORRERY_CHECK(columns.width >= columns.v + v,
                 std::string(name_of(op.kind)) + ": rows too narrow for the heads in them");
    return columns;
}

}  // namespace orrery::exec
