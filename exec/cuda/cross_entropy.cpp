#include "exec/cuda/cross_entropy.h"

#include "exec/cuda/device_operands.h"
#include "exec/operator_shapes.h"
#include "kernels/cuda/cross_entropy.h"

namespace orrery::exec {
namespace {

namespace loss_kernels = kernels::cuda;
using loss_kernels::StreamHandle;
using models::Operator;
using models::OpKind;

void run_loss(StreamHandle stream, const Operator& op, const DeviceOperands& o) {
    if (op.sources == 0) {
        return loss_kernels::cross_entropy_loss(stream, op.rows, o.in(0), o.in(1), o.out(0), o.loss(1));
    }
    loss_kernels::cross_entropy_loss_of_parts(stream, op.rows, op.sources, op.n, o.in(0), o.in(1), o.integers(2),
                                              o.out(0), o.loss(1));
}

void run_loss_backward(StreamHandle stream, const Operator& op, const DeviceOperands& o,
                       const OperatorContext& context) {
    o.must_be_same(0, 0);
    const auto scale = static_cast<float>(context.loss_scale);
    const kernels::VocabShard shard = vocab_shard(op, context);
    if (o.optional_in(3) == nullptr) {
        return loss_kernels::cross_entropy_backward(stream, shard, scale, o.in(1), o.integers(2), o.floats_out(0));
    }
    loss_kernels::cross_entropy_backward_of_exponentials(stream, shard, scale, o.in(3), o.in(1), o.integers(2),
                                                         o.floats_out(0));
}

}  // namespace

void run_cross_entropy(StreamHandle stream, const Operator& op, const DeviceOperands& o,
                       const OperatorContext& context) {
    switch (op.kind) {
        case OpKind::cross_entropy_max:
            return loss_kernels::cross_entropy_max(stream, vocab_shard(op, context), o.floats_in(0), o.out(0));
        case OpKind::cross_entropy_sum:
            if (op.is_fused()) {
                return loss_kernels::cross_entropy_online(stream, vocab_shard(op, context), o.floats_in(0),
                                                          o.integers(2), o.out(2), o.out(0));
            }
            return loss_kernels::cross_entropy_sum(stream, vocab_shard(op, context), o.floats_in(0), o.in(1),
                                                   o.integers(2), o.out(0), o.optional_floats_out(1));
        case OpKind::cross_entropy_loss:
            return run_loss(stream, op, o);
        case OpKind::cross_entropy_backward:
            return run_loss_backward(stream, op, o, context);
        default:
            o.must_be_same(0, 0);
            return loss_kernels::cross_entropy_correct(stream, vocab_shard(op, context), op.k,
                                                       static_cast<float>(context.loss_scale), o.in(1), o.in(2),
                                                       o.integers(3), o.floats_in(4), o.floats_out(0));
    }
}

}  // namespace orrery::exec
