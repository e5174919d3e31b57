#include "exec/cpu/updates.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace orrery::exec {

namespace {

/// The factor on gradients that limits their norm to the clip norm, as in PyTorch's clip_grad_norm_. norm[0] is the sum
/// of squares.
double clip_factor(const double* norm, double clip_norm) {
    constexpr double kSmall = 1e-6;
    return std::min(1.0, clip_norm / (std::sqrt(norm[0]) + kSmall));
}

/// Updates one range of elements: fp32 parameters, or bf16 parameters with their master weights.
template <typename Options, typename States, typename Update>
void update_range(const Operands& o, const UpdateRange& range, const Options& options, double factor,
                  const States& states, const Update& update) {
    const auto scaled = [&](auto* gradient) {
        if (factor < 1.0) kernels::scale(range.elements, static_cast<float>(factor), gradient);
        return gradient;
    };
    if (o.out_type(0) == DType::fp32) {
        o.must_be_absent(o.optional_out(4));
        states(o.out(0) + range.parameter, scaled(o.consumed(0) + range.gradient), [&](auto... arguments) {  //
            update(range.elements, options, arguments...);
        });
        return;
    }
    std::uint16_t* parameters = o.out_bf16(0) + range.parameter;
    const auto with_master = [&](auto* gradient) {
        states(o.out(4) + range.state, gradient, [&](auto... arguments) {  //
            update(range.elements, options, arguments..., parameters);
        });
    };
    if (o.in_type(0) == DType::bf16) {
        with_master(scaled(o.in_bf16(0) + range.gradient));
    } else {
        with_master(scaled(o.consumed(0) + range.gradient));
    }
}

/// The range in host memory, where parameters and gradients have the layout of the states.
UpdateRange together(UpdateRange range) {
    range.parameter = range.gradient = range.state;
    return range;
}

/// Updates all ranges of the rank, without weight decay for the ranges that do not decay.
template <typename Options, typename States, typename Update>
void update_all(const models::Operator& op, const Operands& o, const OperatorContext& context, const Options& common,
                const States& states, const Update& update) {
    const auto* norm = static_cast<const double*>(o.any_in(1));
    const double factor = norm == nullptr ? 1.0 : clip_factor(norm, context.clip_norm);
    for (const UpdateRange& placed : context.updates) {
        const UpdateRange range = op.offloaded ? together(placed) : placed;
        Options options = common;
        if (!range.decays) options.weight_decay = 0.0;
        update_range(
            o, range, options, factor,
            [&](float* weights, auto* gradient, const auto& call) { states(range.state, weights, gradient, call); },
            update);
    }
}

}  // namespace

void run_adamw(const models::Operator& op, const Operands& o, const OperatorContext& context) {
    const auto states = [&](std::int64_t at, float* weights, auto* gradient, const auto& call) {
        if (o.out_type(1) == DType::bf16) {
            call(weights, o.out_bf16(1) + at, o.out_bf16(2) + at, gradient);
        } else {
            call(weights, o.out(1) + at, o.out(2) + at, gradient);
        }
    };
    update_all(op, o, context, context.optimizer, states, [&](auto... arguments) {
        if (context.decoupled_decay) {
            kernels::adamw(arguments...);
        } else {
            kernels::adam(arguments...);
        }
    });
}

void run_sgd_momentum(const models::Operator& op, const Operands& o, const OperatorContext& context) {
    const auto states = [&](std::int64_t at, float* weights, auto* gradient, const auto& call) {
        call(weights, o.out(1) + at, gradient);
    };
    update_all(op, o, context, context.sgd, states, [](auto... arguments) { kernels::sgd_momentum(arguments...); });
}

void run_offloaded_copy(const models::Operator& op, const Operands& o, const OperatorContext& context) {
    const bool out = op.kind == models::OpKind::copy_to_host;
    const std::int64_t element = size_of(out ? o.in_type(0) : o.out_type(0));
    ORRERY_CHECK(o.in_type(0) == o.out_type(0), "a copy changes no type");
    const auto* from = static_cast<const std::byte*>(o.any_in(0));
    auto* to = static_cast<std::byte*>(o.any_out(0));
    for (const UpdateRange& range : context.updates) {
        const std::int64_t source = out ? range.gradient : range.state;
        const std::int64_t target = out ? range.state : range.parameter;
        std::memcpy(to + target * element, from + source * element, static_cast<std::size_t>(range.elements * element));
    }
}

void run_gradient_norm(const Operands& o, const OperatorContext& context) {
    double squares = 0;
    for (const UpdateRange& range : context.updates) {
        if (!range.counted) continue;
        squares += o.in_type(0) == DType::bf16 ? kernels::sum_of_squares(range.elements, o.in_bf16(0) + range.gradient)
                                               : kernels::sum_of_squares(range.elements, o.in(0) + range.gradient);
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
        if (o.out_type(0) == DType::bf16) {
            kernels::scale(range.elements, static_cast<float>(factor), o.out_bf16(0) + range.gradient);
        } else {
            kernels::scale(range.elements, static_cast<float>(factor), o.out(0) + range.gradient);
        }
    }
}

}  // namespace orrery::exec
