#include "exec/cpu/updates.h"

#include <algorithm>
#include <cmath>

namespace orrery::exec {

namespace {

/// What gradients are multiplied by so that their norm is at most the clip norm, as PyTorch's clip_grad_norm_ has it.
double clip_factor(const double* norm, double clip_norm) {
    constexpr double kSmall = 1e-6;
    return std::min(1.0, clip_norm / (std::sqrt(norm[0]) + kSmall));
}

using Update = void(std::int64_t, const kernels::AdamW&, float*, float*, float*, float*);

}  // namespace

void run_adamw(const Operands& o, const OperatorContext& context) {
    o.must_be_absent(o.optional_out(4));
    const auto* norm = static_cast<const double*>(o.any_in(1));
    const double factor = norm == nullptr ? 1.0 : clip_factor(norm, context.clip_norm);
    Update* const update =
        context.decoupled_decay ? static_cast<Update*>(kernels::adamw) : static_cast<Update*>(kernels::adam);
    for (const UpdateRange& range : context.updates) {
        kernels::AdamW options = context.optimizer;
        if (!range.decays) options.weight_decay = 0.0;
        float* gradient = o.consumed(0) + range.gradient;
        if (factor < 1.0) kernels::scale(range.elements, static_cast<float>(factor), gradient);
        update(range.elements, options, o.out(0) + range.parameter, o.out(1) + range.state, o.out(2) + range.state,
               gradient);
    }
}

void run_sgd_momentum(const Operands& o, const OperatorContext& context) {
    o.must_be_absent(o.optional_out(4));
    const auto* norm = static_cast<const double*>(o.any_in(1));
    const double factor = norm == nullptr ? 1.0 : clip_factor(norm, context.clip_norm);
    for (const UpdateRange& range : context.updates) {
        float* gradient = o.consumed(0) + range.gradient;
        if (factor < 1.0) kernels::scale(range.elements, static_cast<float>(factor), gradient);
        kernels::SgdMomentum options = context.sgd;
        if (!range.decays) options.weight_decay = 0.0;
        kernels::sgd_momentum(range.elements, options, o.out(0) + range.parameter, o.out(1) + range.state, gradient);
    }
}

void run_gradient_norm(const Operands& o, const OperatorContext& context) {
    double squares = 0;
    for (const UpdateRange& range : context.updates) {
        if (range.counted) squares += kernels::sum_of_squares(range.elements, o.in(0) + range.gradient);
    }
    auto* norm = static_cast<double*>(o.any_out(0));
    norm[0] = squares;
    norm[1] = std::isfinite(squares) ? 0.0 : 1.0;
}

void run_gradient_scale(const Operands& o, const OperatorContext& context) {
    o.must_be_same(1, 0);
    const double factor = clip_factor(static_cast<const double*>(o.any_in(0)), context.clip_norm);
    if (factor >= 1.0) return;
    for (const UpdateRange& range : context.updates) {
        kernels::scale(range.elements, static_cast<float>(factor), o.out(0) + range.gradient);
    }
}

}  // namespace orrery::exec
