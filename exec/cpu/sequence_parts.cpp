#include "exec/cpu/sequence_parts.h"

#include <vector>

#include "exec/attention_part.h"
#include "exec/operator_rows.h"
#include "exec/operator_shapes.h"
#include "kernels/attention.h"
#include "kernels/kernels.h"
#include "kernels/layout.h"

namespace orrery::exec {

using models::Operator;
using models::OpKind;

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
    OperatorAttention attention(op, context);
    kernels::AttentionPart& part = attention.part;
    if (!attention.slopes.empty()) part.alibi_slopes = attention.slopes.data();
    float* scratch = o.scratch(kernels::attention_part_scratch_elements(kernels::AttentionPart::positions(part.queries),
                                                                        kernels::AttentionPart::positions(part.keys)));
    if (op.kind == OpKind::attention_forward) {
        o.must_be_absent(o.optional_out(2));
        const KeyColumns from = key_columns(op, at.in, at.in_width, 0, 1);
        const float* keys = o.in(from.slot);
        kernels::attention_forward(part, {o.in(0), at.in_width[0]}, {keys + from.k, from.width},
                                   {keys + from.v, from.width}, o.out(0), o.out(1), scratch);
        return;
    }
    const KeyColumns from = key_columns(op, at.in, at.in_width, 1, 4);
    const KeyColumns to = key_columns(op, at.out, at.out_width, 0, 1);
    const float* keys = o.in(from.slot);
    float* gradients = o.out(to.slot);
    kernels::attention_backward(part, o.in(0), {o.in(1), at.in_width[1]}, {keys + from.k, from.width},
                                {keys + from.v, from.width}, o.in(2), o.in(3), {o.out(0), at.out_width[0]},
                                {gradients + to.k, to.width}, {gradients + to.v, to.width}, scratch);
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
    const std::vector<std::int64_t> sections = head_sections(op, context);
    const kernels::HeadBlocks shape{op.rows, context.cp, sections};
    if (op.kind == OpKind::cut_heads) return kernels::heads_to_blocks(shape, o.in(0), o.out(0));
    kernels::blocks_to_heads(shape, o.in(0), o.out(0));
}

}  // namespace orrery::exec
