#include "exec/cpu/expert_rows.h"

#include <numeric>
#include <vector>

#include "exec/operator_shapes.h"
#include "kernels/experts.h"

namespace orrery::exec {

using models::Operator;
using models::OpKind;

std::int64_t rows_of(const Operator& op, const OperatorPointers& at, std::size_t counts) {
    const auto* values = static_cast<const std::int64_t*>(at.in.at(counts));
    return values == nullptr ? op.rows : std::accumulate(values, values + op.sources * op.groups, std::int64_t{0});
}

void run_router(const Operator& op, const Operands& o, const models::ModelSpec& model) {
    const kernels::RouterShape shape = router_shape(op, model);
    if (op.kind == OpKind::router_backward) {
        kernels::router_backward(shape, o.in(0), o.in(1), o.integers(2), o.optional_in(3), o.out(0));
        return;
    }
    // Load balancing would adjust the score correction between steps. The executor does not: it stays zero.
    const std::vector<float> correction(static_cast<std::size_t>(model.moe.score_correction_bias ? op.n : 0), 0.0F);
    kernels::router_forward(shape, o.in(0), correction.empty() ? nullptr : correction.data(), o.out(0),
                            o.integers_out(1));
}

void run_permutation(const Operator& op, const Operands& o, const models::ModelSpec& model) {
    const kernels::PermuteShape shape = permute_shape(op, model);
    switch (op.kind) {
        case OpKind::permute_forward:
            kernels::count_experts(op.rows, op.n, o.integers(1), o.counts_out(2));
            kernels::expert_rows(op.rows, op.n, o.integers(1), o.counts_out(2), o.integers_out(1));
            return kernels::permute_forward(shape, o.in(0), o.integers_out(1), o.out(0));
        case OpKind::permute_backward:
            return kernels::permute_backward(shape, o.in(0), o.integers(1), o.out(0));
        case OpKind::combine_forward:
            return kernels::combine_forward(shape, o.in(0), o.in(1), o.integers(2), o.out(0));
        default:
            return kernels::combine_backward(shape, o.in(0), o.in(1), o.in(2), o.integers(3), o.out(0), o.out(1));
    }
}

void run_regrouping(const Operator& op, const Operands& o) {
    const kernels::ReceivedRows shape{op.sources, op.groups, op.k, o.counts(1)};
    if (op.kind == OpKind::group_by_expert) {
        kernels::group_by_expert(shape, o.in(0), o.out(0));
    } else {
        kernels::group_by_source(shape, o.in(0), o.out(0));
    }
}

void run_expert_linear(const Operator& op, const Operands& o) {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(op.groups));
    for (std::int64_t i = 0; i < op.sources * op.groups; ++i) {
        counts[static_cast<std::size_t>(i % op.groups)] += o.counts(2)[i];
    }
    const kernels::ExpertLinearShape shape{op.groups, op.n, op.k, counts.data()};
    switch (op.kind) {
        case OpKind::expert_linear_forward:
            return kernels::expert_linear_forward(shape, o.in(0), o.in(1), o.out(0));
        case OpKind::expert_linear_backward_input:
            return kernels::expert_linear_backward_input(shape, o.in(0), o.in(1), o.out(0));
        default:
            return kernels::expert_linear_backward_weight(shape, o.in(0), o.in(1), o.out(0));
    }
}

}  // namespace orrery::exec
