#include "exec/operator_shapes.h"

#include <algorithm>
#include <string>

#include "core/error.h"

namespace orrery::exec {

using models::Operator;
using models::OpKind;

kernels::LinearShape linear_shape(const Operator& op) {
    return {op.rows, op.n, op.k};
}
kernels::NormShape norm_shape(const Operator& op) {
    return {op.rows, op.k};
}
kernels::HeadShape head_shape(const Operator& op) {
    return {op.rows, op.heads, op.kv_heads, op.head_dim};
}

kernels::EmbeddingShape embedding_shape(const Operator& op, const OperatorContext& context) {
    return {op.rows, op.k, context.tp_index * op.n, op.n};
}

kernels::VocabShard vocab_shard(const Operator& op, const OperatorContext& context) {
    const std::int64_t start = context.tp_index * op.n;
    return {op.rows, op.n, std::clamp<std::int64_t>(context.model->vocab - start, 0, op.n), start};
}

void for_each_overwritten(const Operator& op, const std::function<void(std::size_t, std::int64_t)>& visit) {
    // Which outputs are gradients follows from what each kind accumulates into.
    switch (op.kind) {
        case OpKind::embedding_backward:
            return visit(0, op.n * op.k);
        case OpKind::position_backward:
            return visit(0, op.n * op.k);
        case OpKind::layer_norm_backward:
            visit(1, op.k);
            return visit(2, op.k);
        case OpKind::rms_norm_backward:
            return visit(1, op.k);
        case OpKind::linear_backward_weight:
            visit(0, op.n * op.k);
            return visit(1, op.n);
        case OpKind::expert_linear_backward_weight:
            return visit(0, op.groups * op.n * op.k);
        case OpKind::head_norm_backward:
            visit(1, op.head_dim);
            return visit(2, op.head_dim);
        case OpKind::bias_backward:
            return visit(0, op.n);
        default:
            throw_bug(__FILE__, __LINE__, "OpKind", std::string(name_of(op.kind)) + " has no gradient to set");
    }
}

}  // namespace orrery::exec
