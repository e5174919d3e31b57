#include "exec/cuda/expert_rows.h"

#include "exec/cuda/float_operands.h"
#include "exec/operator_shapes.h"
#include "kernels/cuda/experts.h"

namespace orrery::exec {

using kernels::cuda::StreamHandle;
using models::Operator;
using models::OpKind;

kernels::cuda::RowCount counted_rows(const Operator& op, const OperatorPointers& at, std::size_t counts) {
    const auto* values = static_cast<const std::int64_t*>(at.in.at(counts));
    if (values == nullptr) return {op.rows};
    return {at.in_elements[0] / at.in_width[0], values, op.sources * op.groups};
}

void run_router(StreamHandle stream, const Operator& op, const Operands& o, const OperatorPointers& at,
                const models::ModelSpec& model, const float* correction) {
    const kernels::RouterShape shape = router_shape(op, model);
    const FloatOperands f(o, at);
    if (op.kind == OpKind::router_backward) {
        kernels::cuda::router_backward(stream, shape, f.in(0), f.in(1), o.integers(2), f.optional_in(3), f.out(0));
        return;
    }
    kernels::cuda::router_forward(stream, shape, f.in(0), correction, f.out(0), o.integers_out(1));
}

void run_permutation(StreamHandle stream, const Operator& op, const Operands& o, const OperatorPointers& at,
                     const models::ModelSpec& model) {
    namespace k = kernels::cuda;
    const kernels::PermuteShape shape = permute_shape(op, model);
    const FloatOperands f(o, at);
    switch (op.kind) {
        case OpKind::permute_forward:
            k::sort_by_expert(stream, op.rows, op.n, o.integers(1), o.counts_out(2), o.integers_out(1));
            return k::permute_forward(stream, shape, f.in(0), o.integers_out(1), f.out(0));
        case OpKind::permute_backward:
            return k::permute_backward(stream, shape, f.in(0), o.integers(1), f.out(0));
        case OpKind::combine_forward:
            return k::combine_forward(stream, shape, f.in(0), f.in(1), o.integers(2), f.out(0));
        default:
            return k::combine_backward(stream, shape, f.in(0), f.in(1), f.in(2), o.integers(3), f.out(0), f.out(1));
    }
}

void run_regrouping(StreamHandle stream, const Operator& op, const Operands& o, const OperatorPointers& at) {
    const kernels::ReceivedRows shape{op.sources, op.groups, op.k, o.counts(1)};
    const FloatOperands f(o, at);
    const auto regroup =
        op.kind == OpKind::group_by_expert ? kernels::cuda::group_by_expert : kernels::cuda::group_by_source;
    regroup(stream, shape, counted_rows(op, at, 1).most, f.in(0), f.out(0));
}

void run_expert_linear(StreamHandle stream, const Operator& op, const Operands& o, const OperatorPointers& at) {
    namespace k = kernels::cuda;
    const k::ReceivedLinearShape shape{.sources = op.sources,
                                       .groups = op.groups,
                                       .n = op.n,
                                       .k = op.k,
                                       .most_rows = counted_rows(op, at, 2).most,
                                       .counts = o.counts(2)};
    const FloatOperands f(o, at);
    switch (op.kind) {
        case OpKind::expert_linear_forward:
            return k::expert_linear_forward(stream, shape, f.in(0), f.in(1), f.out(0));
        case OpKind::expert_linear_backward_input:
            return k::expert_linear_backward_input(stream, shape, f.in(0), f.in(1), f.out(0));
        default:
            return k::expert_linear_backward_weight(stream, shape, f.in(0), f.in(1), f.out(0));
    }
}

}  // namespace orrery::exec
