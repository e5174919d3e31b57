#include "exec/cuda/cuda_operators.h"

#include <cuda_runtime.h>

#include <string>

#include "core/error.h"
#include "exec/cuda/check.h"
#include "exec/cuda/device_operands.h"
#include "exec/cuda/dropout.h"
#include "exec/cuda/sequence_parts.h"
#include "exec/operator_shapes.h"
#include "models/operator_table.h"

namespace orrery::exec {
namespace {

namespace k = kernels::cuda;
using models::Operator;
using models::OpKind;
using models::WorkClass;

cudaStream_t stream_of(k::StreamHandle handle) {
    return static_cast<cudaStream_t>(handle.stream);
}

void clear(k::StreamHandle stream, void* memory, std::int64_t bytes) {
    check_cuda(cudaMemsetAsync(memory, 0, static_cast<std::size_t>(bytes), stream_of(stream)), "cudaMemsetAsync");
}

void copy(k::StreamHandle stream, void* to, const void* from, std::int64_t bytes) {
    if (to == from) return;
    check_cuda(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream_of(stream)),
               "cudaMemcpyAsync");
}

k::Clipping clipping_of(const void* norm, const OperatorContext& context) {
    return {static_cast<const double*>(norm), context.clip_norm};
}

void run_update(k::StreamHandle stream, const Operator& op, const Operands& o, const OperatorContext& context) {
    o.must_be_absent(o.optional_out(4));
    const k::Clipping clipping = clipping_of(o.any_in(1), context);
    for (const UpdateRange& range : context.updates) {
        float* gradient = o.consumed(0) + range.gradient;
        float* parameters = o.out(0) + range.parameter;
        float* first = o.out(1) + range.state;
        if (op.kind == OpKind::sgd_momentum) {
            kernels::SgdMomentum options = context.sgd;
            if (!range.decays) options.weight_decay = 0.0;
            k::sgd_momentum(stream, range.elements, options, clipping, parameters, first, gradient);
            continue;
        }
        kernels::AdamW options = context.optimizer;
        if (!range.decays) options.weight_decay = 0.0;
        const auto update = context.decoupled_decay ? k::adamw : k::adam;
        update(stream, range.elements, options, clipping, parameters, first, o.out(2) + range.state, gradient);
    }
}

void run_gradient_norm(k::StreamHandle stream, const Operands& o, const OperatorContext& context, double* partial) {
    auto* norm = static_cast<double*>(o.any_out(0));
    clear(stream, norm, 2 * static_cast<std::int64_t>(sizeof(double)));
    for (const UpdateRange& range : context.updates) {
        if (range.counted) k::sum_of_squares(stream, range.elements, o.in(0) + range.gradient, partial, norm);
    }
    k::mark_not_finite(stream, norm);
}

void run_gradient_scale(k::StreamHandle stream, const Operands& o, const OperatorContext& context) {
    o.must_be_same(1, 0);
    for (const UpdateRange& range : context.updates) {
        k::scale(stream, range.elements, clipping_of(o.any_in(0), context), o.out(0) + range.gradient);
    }
}

[[noreturn]] void refuse(const Operator& op) {
    throw_bug(__FILE__, __LINE__, "OpKind", std::string(name_of(op.kind)) + " does not run on CUDA");
}

void run_norm(k::StreamHandle stream, const Operator& op, const DeviceOperands& o, const OperatorPointers& at,
              double epsilon) {
    switch (op.kind) {
        case OpKind::layer_norm_forward:
            return k::layer_norm_forward(stream, norm_shape(op, at), epsilon, o.floats_in(0), o.floats_in(1),
                                         o.floats_in(2), o.floats_out(0), o.out(1));
        case OpKind::layer_norm_backward:
            return k::layer_norm_backward(stream, norm_shape(op, at), o.floats_in(0), o.floats_in(1), o.floats_in(2),
                                          o.in(3), o.optional_floats_in(4), o.floats_out(0), o.floats_out(1),
                                          o.floats_out(2));
        case OpKind::rms_norm_forward:
            return k::rms_norm_forward(stream, norm_shape(op, at), epsilon, o.floats_in(0), o.floats_in(1),
                                       o.floats_out(0), o.out(1));
        case OpKind::rms_norm_backward:
            return k::rms_norm_backward(stream, norm_shape(op, at), o.floats_in(0), o.floats_in(1), o.floats_in(2),
                                        o.in(3), o.optional_floats_in(4), o.floats_out(0), o.floats_out(1));
        case OpKind::head_norm_forward:
            return k::head_norm_forward(stream, head_shape(op), epsilon, o.floats_in(0), o.floats_in(1), o.floats_in(2),
                                        o.floats_out(0), o.out(1));
        case OpKind::head_norm_backward:
            return k::head_norm_backward(stream, head_shape(op), o.floats_in(0), o.floats_in(1), o.floats_in(2),
                                         o.floats_in(3), o.in(4), o.floats_out(0), o.floats_out(1), o.floats_out(2));
        default:
            refuse(op);
    }
}

/// Table lookups: token and position embeddings.
void run_embedding(k::StreamHandle stream, const Operator& op, const DeviceOperands& o,
                   const OperatorContext& context) {
    switch (op.kind) {
        case OpKind::embedding_forward:
            return k::embedding_forward(stream, embedding_shape(op, context), o.integers(0), o.floats_in(1),
                                        o.floats_out(0));
        case OpKind::embedding_backward:
            return k::embedding_backward(stream, embedding_shape(op, context), o.floats_in(0), o.integers(1),
                                         o.floats_out(0));
        case OpKind::position_forward:
            return run_position_forward(stream, op, o, context);
        case OpKind::position_backward:
            return run_position_backward(stream, op, o, context);
        default:
            refuse(op);
    }
}

void run_attention_memory(k::StreamHandle stream, const Operator& op, const DeviceOperands& o,
                          const OperatorPointers& at, const OperatorContext& context) {
    switch (op.kind) {
        case OpKind::attention_merge:
            return run_attention_merge(stream, op, o);
        case OpKind::copy_columns:
        case OpKind::add_columns:
            return run_columns(stream, op, o, at);
        case OpKind::repeat_heads:
        case OpKind::sum_repeated_heads:
            return run_repetition(stream, op, o, at);
        case OpKind::cut_heads:
        case OpKind::join_heads:
        case OpKind::join_sequence:
        case OpKind::cut_sequence:
            return run_relay(stream, op, o, at, context);
        default:
            refuse(op);
    }
}

void run_linear(k::StreamHandle stream, const Operator& op, const Operands& o, k::Products& products) {
    switch (op.kind) {
        case OpKind::linear_forward:
            return products.linear_forward(stream, linear_shape(op), o.in(0), o.in(1), o.optional_in(2), o.out(0));
        case OpKind::linear_backward_input:
            return products.linear_backward_input(stream, linear_shape(op), o.in(0), o.in(1), o.out(0));
        default:
            return products.linear_backward_weight(stream, linear_shape(op), o.in(0), o.in(1), o.out(0),
                                                   o.optional_out(1));
    }
}

void run_activation(k::StreamHandle stream, const Operator& op, const Operands& o) {
    switch (op.kind) {
        case OpKind::gelu_forward:
            return k::gelu_forward(stream, op.rows * op.n, o.in(0), o.out(0));
        case OpKind::gelu_backward:
            return k::gelu_backward(stream, op.rows * op.n, o.in(0), o.in(1), o.out(0));
        case OpKind::swiglu_forward:
            return k::swiglu_forward(stream, op.rows, op.n, o.in(0), o.out(0));
        default:
            return k::swiglu_backward(stream, op.rows, op.n, o.in(0), o.in(1), o.out(0));
    }
}

void run_cross_entropy(k::StreamHandle stream, const Operator& op, const Operands& o, const OperatorContext& context) {
    switch (op.kind) {
        case OpKind::cross_entropy_max:
            return k::cross_entropy_max(stream, vocab_shard(op, context), o.in(0), o.out(0));
        case OpKind::cross_entropy_sum:
            return k::cross_entropy_sum(stream, vocab_shard(op, context), o.in(0), o.in(1), o.integers(2), o.out(0));
        case OpKind::cross_entropy_loss:
            return k::cross_entropy_loss(stream, op.rows, o.in(0), o.in(1), o.out(0), o.loss(1));
        default:
            o.must_be_same(0, 0);
            return k::cross_entropy_backward(stream, vocab_shard(op, context), static_cast<float>(context.loss_scale),
                                             o.in(1), o.integers(2), o.out(0));
    }
}

}  // namespace

CudaOperators::CudaOperators(const std::function<std::byte*(std::int64_t)>& allocate) : tables_(allocate) {
    constexpr std::int64_t kBytes = k::kPartialSums * static_cast<std::int64_t>(sizeof(double));
    partial_sums_ = reinterpret_cast<double*>(allocate(kBytes));
    if (partial_sums_ == nullptr) throw JobError("cudaMalloc: no device memory for partial sums");
}

void CudaOperators::run(k::StreamHandle stream, const Operator& op, const OperatorPointers& at,
                        const OperatorContext& context) {
    ORRERY_CHECK(context.model != nullptr, "an operator context without a model");
    const DeviceOperands o(op, at);
    if (op.overwrites_gradients) {
        for_each_overwritten(op, [&](std::size_t i, std::int64_t elements) {
            if (at.out.at(i) != nullptr) clear(stream, at.out.at(i), elements * size_of(at.out_dtype.at(i)));
        });
    }
    switch (models::row_of(op.kind).work) {
        case WorkClass::embedding:
            return run_embedding(stream, op, o, context);
        case WorkClass::norm:
            return run_norm(stream, op, o, at, context.model->norm_epsilon);
        case WorkClass::attention:
            return run_attention(stream, op, o, at, context, tables_);
        case WorkClass::attention_memory:
            return run_attention_memory(stream, op, o, at, context);
        default:
            break;
    }
    switch (op.kind) {
        case OpKind::linear_forward:
        case OpKind::linear_backward_input:
        case OpKind::linear_backward_weight:
            return run_linear(stream, op, o, products_);
        case OpKind::rope_forward:
        case OpKind::rope_backward:
            return run_rotation(stream, op, o, at, context, tables_);
        case OpKind::gelu_forward:
        case OpKind::gelu_backward:
        case OpKind::swiglu_forward:
        case OpKind::swiglu_backward:
            return run_activation(stream, op, o);
        case OpKind::residual_add:
            return run_residual_add(stream, op, o, at, context);
        case OpKind::residual_add_backward:
            return run_residual_add_backward(stream, op, o, context);
        case OpKind::bias_backward:
            return k::bias_backward(stream, op.rows, op.n, o.in(0), o.out(0));
        case OpKind::cross_entropy_max:
        case OpKind::cross_entropy_sum:
        case OpKind::cross_entropy_loss:
        case OpKind::cross_entropy_backward:
            return run_cross_entropy(stream, op, o, context);
        case OpKind::adamw:
        case OpKind::sgd_momentum:
            return run_update(stream, op, o, context);
        case OpKind::gradient_norm:
            return run_gradient_norm(stream, o, context, partial_sums_);
        case OpKind::gradient_scale:
            return run_gradient_scale(stream, o, context);
        case OpKind::clear:
            return clear(stream, o.any_out(0), op.elements * size_of(o.out_type(0)));
        case OpKind::accumulate:
            return k::add(stream, op.elements, o.in(0), o.out(0));
        case OpKind::cast:
            ORRERY_CHECK(o.in_type(0) == o.out_type(0), "a cast on CUDA keeps the type");
            return copy(stream, o.any_out(0), o.any_in(0), op.elements * size_of(o.in_type(0)));
        case OpKind::copy_to_host:
        case OpKind::copy_from_host:
            return copy(stream, o.any_out(0), o.any_in(0), static_cast<std::int64_t>(op.bytes_read));
        default:
            refuse(op);
    }
}

}  // namespace orrery::exec
