#include "exec/cuda/sequence_parts.h"

#include <vector>

#include "exec/attention_part.h"
#include "exec/operator_rows.h"
#include "exec/operator_shapes.h"
#include "kernels/cuda/kernels.h"

namespace orrery::exec {

namespace k = kernels::cuda;
using models::Operator;
using models::OpKind;

void run_position_forward(k::StreamHandle stream, const Operator& op, const DeviceOperands& o,
                          const OperatorContext& context) {
    const std::int64_t before = context.model->position_offset * op.k;  // table rows before position 0
    for_each_run(op, context, [&](const kernels::PositionShape& shape, std::int64_t offset) {
        k::position_forward(stream, shape, o.floats_in(0).from(offset), o.floats_in(1).from(before),
                            o.floats_out(0).from(offset));
    });
}
void run_position_backward(k::StreamHandle stream, const Operator& op, const DeviceOperands& o,
                           const OperatorContext& context) {
    const std::int64_t before = context.model->position_offset * op.k;
    for_each_run(op, context, [&](const kernels::PositionShape& shape, std::int64_t offset) {
        k::position_backward(stream, shape, o.floats_in(0).from(offset), o.floats_out(0).from(before));
    });
}

void run_rotation(k::StreamHandle stream, const Operator& op, const DeviceOperands& o, const OperatorPointers& at,
                  const OperatorContext& context, DeviceTables& tables) {
    const models::ModelSpec& model = *context.model;
    const std::int64_t width = model.rotary_width();
    const DeviceTables::Rotary table = tables.rotary(stream, model, op.sequence, width);
    const std::vector<kernels::PositionRun> positions = positions_of(op, context);
    const kernels::Rotation rotation{.positions = positions,
                                     .micro_batch = op.micro_batch,
                                     .width = width,
                                     .cosines = table.cosines,
                                     .sines = table.sines};
    const bool inverse = op.kind == OpKind::rope_backward;
    if (!model.has_latent_attention()) {
        o.must_be_same(0, 0);
        return k::rotate(stream, head_shape(op), rotation, inverse, o.floats_out(0));
    }
    const kernels::LatentHeads shape = latent_heads(op, model.latent);
    if (inverse) {
        return k::latent_rotate_backward(stream, shape, rotation, o.floats_in(0), o.floats_out(0), o.floats_out(1),
                                         {o.floats_out(2), at.out_width[2]});
    }
    k::latent_rotate_forward(stream, shape, rotation, o.floats_in(0), o.floats_in(1),
                             {o.floats_in(2).from(model.latent.kv_lora_rank), at.in_width[2]}, o.floats_out(0));
}

void run_attention(k::StreamHandle stream, const Operator& op, const DeviceOperands& o, const OperatorPointers& at,
                   const OperatorContext& context, DeviceTables& tables,
                   const std::function<std::byte*(std::int64_t bytes)>& scratch) {
    OperatorAttention attention(op, context);
    kernels::AttentionPart& part = attention.part;
    part.alibi_slopes = tables.copy_of(stream, attention.slopes);
    if (op.kind == OpKind::attention_forward) {
        o.must_be_absent(o.optional_out(2));
        const KeyColumns from = key_columns(op, at.in, at.in_width, 0, 1);
        const k::ConstFloats keys = o.floats_in(from.slot);
        k::attention_forward(stream, part, {o.floats_in(0), at.in_width[0]}, {keys.from(from.k), from.width},
                             {keys.from(from.v), from.width}, o.floats_out(0), o.out(1));
        return;
    }
    const KeyColumns from = key_columns(op, at.in, at.in_width, 1, 4);
    const KeyColumns to = key_columns(op, at.out, at.out_width, 0, 1);
    const k::ConstFloats keys = o.floats_in(from.slot);
    const k::Floats gradients = o.floats_out(to.slot);
    const std::int64_t queries = part.heads * part.query_rows();
    float* const of_queries =
        o.floats_in(0).type == DType::bf16
            ? reinterpret_cast<float*>(scratch(queries * static_cast<std::int64_t>(sizeof(float))))
            : nullptr;
    k::attention_backward(stream, part, o.floats_in(0), {o.floats_in(1), at.in_width[1]},
                          {keys.from(from.k), from.width}, {keys.from(from.v), from.width}, o.floats_in(2), o.in(3),
                          {o.floats_out(0), at.out_width[0]}, {gradients.from(to.k), to.width},
                          {gradients.from(to.v), to.width}, of_queries);
}

void run_attention_merge(k::StreamHandle stream, const Operator& op, const DeviceOperands& o) {
    o.must_be_same(2, 0);
    o.must_be_same(3, 1);
    k::attention_merge(stream, op.rows, op.heads, op.n / op.heads, o.floats_in(0), o.in(1), o.floats_out(0), o.out(1));
}

void run_columns(k::StreamHandle stream, const Operator& op, const DeviceOperands& o, const OperatorPointers& at) {
    const k::ConstFloatRows from{o.floats_in(0).from(op.from_column), at.in_width[0]};
    const k::FloatRows to{o.floats_out(0).from(op.to_column), at.out_width[0]};
    if (op.kind == OpKind::copy_columns) return k::copy_columns(stream, op.rows, op.n, from, to);
    k::add_columns(stream, op.rows, op.n, from, to);
}

void run_repetition(k::StreamHandle stream, const Operator& op, const DeviceOperands& o, const OperatorPointers& at) {
    const std::int64_t q = op.heads * op.head_dim;
    k::ConstFloatRows from{o.floats_in(0), at.in_width[0]};
    k::FloatRows to{o.floats_out(0), at.out_width[0]};
    k::copy_columns(stream, op.rows, q, from, to);
    const auto skip = [&](std::int64_t in, std::int64_t out) {
        from.data = from.data.from(in);
        to.data = to.data.from(out);
    };
    skip(q, q);
    const bool sums = op.kind == OpKind::sum_repeated_heads;
    const auto one = sums ? k::sum_repeated_heads : k::repeat_heads;
    for (const std::int64_t dim : {op.head_dim, op.value_dim}) {
        one(stream, op.rows, op.kv_heads, dim, op.copies, from, to);
        const std::int64_t alone = op.kv_heads * dim, repeated = alone * op.copies;
        skip(sums ? repeated : alone, sums ? alone : repeated);
    }
}

void run_relay(k::StreamHandle stream, const Operator& op, const DeviceOperands& o, const OperatorPointers& at,
               const OperatorContext& context) {
    if (op.kind == OpKind::join_sequence || op.kind == OpKind::cut_sequence) {
        const kernels::SequenceBlocks shape{op.rows / context.cp, context.cp, at.out_width[0]};
        const auto one = op.kind == OpKind::join_sequence ? k::blocks_to_sequence : k::sequence_to_blocks;
        return one(stream, shape, o.floats_in(0), o.floats_out(0));
    }
    const std::vector<std::int64_t> sections = head_sections(op, context);
    const kernels::HeadBlocks shape{op.rows, context.cp, sections};
    const auto one = op.kind == OpKind::cut_heads ? k::heads_to_blocks : k::blocks_to_heads;
    one(stream, shape, o.floats_in(0), o.floats_out(0));
}

}  // namespace orrery::exec
