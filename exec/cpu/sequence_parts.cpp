#include "exec/cpu/sequence_parts.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "exec/cpu/dropout.h"
#include "exec/operator_rows.h"
#include "kernels/attention.h"
#include "kernels/kernels.h"
#include "kernels/layout.h"

namespace orrery::exec {

using models::Operator;
using models::OpKind;

namespace {

/// The arguments of an attention kernel for this rank's queries, with the storage that `part` points to.
struct Attention {
    Attention(const Operator& op, const OperatorContext& context);
    std::vector<kernels::PositionRun> queries, keys;
    std::vector<float> slopes;
    kernels::AttentionPart part;
    [[nodiscard]] std::int64_t scratch_elements() const {
        return kernels::attention_part_scratch_elements(kernels::AttentionPart::positions(queries),
                                                        kernels::AttentionPart::positions(keys));
    }
};
Attention::Attention(const Operator& op, const OperatorContext& context) {
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
    part.alibi_slopes = slopes.data();
}

/// Keys and values, which are either in the rows of the queries or in a slot of their own.
struct KeysAndValues {
    kernels::ConstRows k, v;
};
KeysAndValues keys_and_values(const Operator& op, const OperatorPointers& at, std::size_t qkv, std::size_t kv) {
    const bool apart = at.in.at(kv) != nullptr;
    const auto* data = static_cast<const float*>(at.in.at(apart ? kv : qkv)) + (apart ? 0 : op.heads * op.head_dim);
    const std::int64_t row = at.in_width.at(apart ? kv : qkv);
    const std::int64_t width = op.kv_heads * (op.head_dim + (op.value_dim > 0 ? op.value_dim : op.head_dim));
    ORRERY_CHECK(row >= width + (apart ? 0 : op.heads * op.head_dim), "rows too narrow for the heads in them");
    return {{data, row}, {data + op.kv_heads * op.head_dim, row}};
}

template <typename Kernel>
void for_each_run(const Operator& op, const OperatorContext& context, const Kernel& kernel) {
    std::int64_t row = 0;
    for (const kernels::PositionRun& run : positions_of(op, context)) {
        const std::int64_t rows = run.count * op.micro_batch;
        kernel(kernels::PositionShape{rows, op.k, op.micro_batch, run.first}, row * op.k);
        row += rows;
    }
}

}  // namespace

void run_position_forward(const Operator& op, const Operands& o, const OperatorContext& context) {
    const std::int64_t before = context.model->position_offset * op.k;  // table rows before position 0
    for_each_run(op, context, [&](const kernels::PositionShape& shape, std::int64_t offset) {
        kernels::position_forward(shape, o.in(0) + offset, o.in(1) + before, o.out(0) + offset);
    });
}
void run_position_backward(const Operator& op, const Operands& o, const OperatorContext& context) {
    const std::int64_t before = context.model->position_offset * op.k;
    for_each_run(op, context, [&](const kernels::PositionShape& shape, std::int64_t offset) {
        kernels::position_backward(shape, o.in(0) + offset, o.out(0) + before);
    });
}

void run_attention(const Operator& op, const Operands& o, const OperatorPointers& at, const OperatorContext& context) {
    const Attention attention(op, context);
    float* scratch = o.scratch(attention.scratch_elements());
    if (op.kind == OpKind::attention_forward) {
        o.must_be_absent(o.optional_out(2));
        const KeysAndValues kv = keys_and_values(op, at, 0, 1);
        kernels::attention_forward(attention.part, {o.in(0), at.in_width[0]}, kv.k, kv.v, o.out(0), o.out(1), scratch);
        return;
    }
    const KeysAndValues kv = keys_and_values(op, at, 1, 4);
    const std::int64_t q_width = op.heads * op.head_dim, k_width = op.kv_heads * op.head_dim;
    const bool apart = at.out[1] != nullptr;
    float* dk = apart ? o.out(1) : o.out(0) + q_width;
    const std::int64_t width = at.out_width[apart ? 1 : 0];
    kernels::attention_backward(attention.part, o.in(0), {o.in(1), at.in_width[1]}, kv.k, kv.v, o.in(2), o.in(3),
                                {o.out(0), at.out_width[0]}, {dk, width}, {dk + k_width, width}, scratch);
}

void run_attention_merge(const Operator& op, const Operands& o) {
    o.must_be_same(2, 0);
    o.must_be_same(3, 1);
    kernels::attention_merge(op.rows, op.heads, op.n / op.heads, o.in(0), o.in(1), o.out(0), o.out(1));
}

void run_columns(const Operator& op, const Operands& o, const OperatorPointers& at) {
    const kernels::ConstRows from{o.in(0) + op.from_column, at.in_width[0]};
    const kernels::Rows to{o.out(0) + op.to_column, at.out_width[0]};
    if (op.kind == OpKind::copy_columns) return kernels::copy_columns(op.rows, op.n, from, to);
    kernels::add_columns(op.rows, op.n, from, to);
}

void run_repetition(const Operator& op, const Operands& o, const OperatorPointers& at) {
    const std::int64_t q = op.heads * op.head_dim;
    kernels::ConstRows from{o.in(0), at.in_width[0]};
    kernels::Rows to{o.out(0), at.out_width[0]};
    kernels::copy_columns(op.rows, q, from, to);
    from.data += q;
    to.data += q;
    const bool sums = op.kind == OpKind::sum_repeated_heads;
    const auto one = sums ? kernels::sum_repeated_heads : kernels::repeat_heads;
    for (const std::int64_t dim : {op.head_dim, op.value_dim}) {
        one(op.rows, op.kv_heads, dim, op.copies, from, to);
        const std::int64_t alone = op.kv_heads * dim, repeated = alone * op.copies;
        from.data += sums ? repeated : alone;
        to.data += sums ? alone : repeated;
    }
}

void run_relay(const Operator& op, const Operands& o, const OperatorPointers& at, const OperatorContext& context) {
    if (op.kind == OpKind::join_sequence || op.kind == OpKind::cut_sequence) {
        const kernels::SequenceBlocks shape{op.rows / context.cp, context.cp, at.out_width[0]};
        if (op.kind == OpKind::join_sequence) return kernels::blocks_to_sequence(shape, o.in(0), o.out(0));
        return kernels::sequence_to_blocks(shape, o.in(0), o.out(0));
    }
    const std::int64_t all = context.cp;
    std::vector<std::int64_t> sections{op.heads * op.value_dim * all};
    if (op.kv_heads > 0) {
        sections = {op.heads * op.head_dim * all, op.kv_heads * op.head_dim * all, op.kv_heads * op.value_dim * all};
    }
    const kernels::HeadBlocks shape{op.rows, all, sections};
    if (op.kind == OpKind::cut_heads) return kernels::heads_to_blocks(shape, o.in(0), o.out(0));
    kernels::blocks_to_heads(shape, o.in(0), o.out(0));
}

}  // namespace orrery::exec
