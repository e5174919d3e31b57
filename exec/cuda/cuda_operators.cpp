#include "exec/cuda/cuda_operators.h"

#include <cuda_runtime.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "exec/cuda/check.h"
#include "exec/operands.h"
#include "exec/operator_rows.h"
#include "exec/operator_shapes.h"

namespace orrery::exec {
namespace {

namespace k = kernels::cuda;
using models::Operator;
using models::OpKind;

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

/// The positions of the operator's rows, which are consecutive without context parallelism.
kernels::PositionShape position_shape(const Operator& op, const OperatorContext& context) {
    const std::vector<kernels::PositionRun> runs = positions_of(op, context);
    ORRERY_CHECK(runs.size() == 1, "positions on CUDA are consecutive");
    return {op.rows, op.k, op.micro_batch, runs.front().first};
}

kernels::AttentionShape attention_shape(const Operator& op, const models::ModelSpec& model) {
    ORRERY_CHECK(op.keys == models::KeyPart::own && op.rows == op.sequence * op.micro_batch &&
                     op.queries == op.sequence && op.value_dim == 0 && model.causal,
                 "attention on CUDA is causal, over whole sequences, with values as wide as keys");
    return {op.sequence, op.micro_batch, op.heads, op.kv_heads, op.head_dim, model.sliding_window};
}

k::Clipping clipping_of(const void* norm, const OperatorContext& context) {
    return {static_cast<const double*>(norm), context.clip_norm};
}

void run_attention(k::StreamHandle stream, const Operator& op, const Operands& o, const models::ModelSpec& model) {
    if (op.kind == OpKind::attention_forward) {
        o.must_be_absent(o.optional_out(2));
        return k::attention_forward(stream, attention_shape(op, model), o.in(0), o.out(0), o.out(1));
    }
    o.must_be_absent(o.optional_in(4));
    k::attention_backward(stream, attention_shape(op, model), o.in(0), o.in(1), o.in(2), o.in(3), o.out(0));
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

void run_residual_add(k::StreamHandle stream, const Operator& op, const Operands& o) {
    o.must_be_absent(o.optional_in(3));
    o.must_be_absent(o.optional_out(1));
    k::residual_add(stream, op.rows, op.k, o.in(0), o.in(1), o.optional_in(2), o.out(0));
}

void run_norm(k::StreamHandle stream, const Operator& op, const Operands& o, double epsilon) {
    const kernels::NormShape shape = norm_shape(op);
    switch (op.kind) {
        case OpKind::layer_norm_forward:
            return k::layer_norm_forward(stream, shape, epsilon, o.in(0), o.in(1), o.in(2), o.out(0), o.out(1));
        case OpKind::layer_norm_backward:
            return k::layer_norm_backward(stream, shape, o.in(0), o.in(1), o.in(2), o.in(3), o.optional_in(4), o.out(0),
                                          o.out(1), o.out(2));
        case OpKind::rms_norm_forward:
            return k::rms_norm_forward(stream, shape, epsilon, o.in(0), o.in(1), o.out(0), o.out(1));
        default:
            return k::rms_norm_backward(stream, shape, o.in(0), o.in(1), o.in(2), o.in(3), o.optional_in(4), o.out(0),
                                        o.out(1));
    }
}

/// Table lookups: token and position embeddings.
void run_embedding(k::StreamHandle stream, const Operator& op, const Operands& o, const OperatorContext& context) {
    switch (op.kind) {
        case OpKind::embedding_forward:
            return k::embedding_forward(stream, embedding_shape(op, context), o.integers(0), o.in(1), o.out(0));
        case OpKind::embedding_backward:
            return k::embedding_backward(stream, embedding_shape(op, context), o.in(0), o.integers(1), o.out(0));
        case OpKind::position_forward:
            return k::position_forward(stream, position_shape(op, context), o.in(0), o.in(1), o.out(0));
        default:
            return k::position_backward(stream, position_shape(op, context), o.in(0), o.out(0));
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

void run_columns(k::StreamHandle stream, const Operator& op, const Operands& o, const OperatorPointers& at) {
    const kernels::ConstRows from{o.in(0) + op.from_column, at.in_width[0]};
    const kernels::Rows to{o.out(0) + op.to_column, at.out_width[0]};
    const auto columns = op.kind == OpKind::copy_columns ? k::copy_columns : k::add_columns;
    columns(stream, op.rows, op.n, from, to);
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

CudaOperators::CudaOperators(std::function<std::byte*(std::int64_t)> allocate) : allocate_(std::move(allocate)) {
    constexpr std::int64_t kBytes = k::kPartialSums * static_cast<std::int64_t>(sizeof(double));
    partial_sums_ = reinterpret_cast<double*>(allocate_(kBytes));
    if (partial_sums_ == nullptr) throw JobError("cudaMalloc: no device memory for partial sums");
}

CudaOperators::RotaryTable CudaOperators::rotary_table(k::StreamHandle stream, const models::ModelSpec& model,
                                                       std::int64_t sequence, std::int64_t head_dim) {
    RotaryTable& table = rotary_[{sequence, head_dim}];
    if (table.cosines != nullptr) return table;
    const auto elements = static_cast<std::size_t>(sequence * (head_dim / 2));
    std::vector<float> values(2 * elements);
    kernels::rotary_table(rotary_frequencies(model), sequence, head_dim, values.data(), values.data() + elements);
    table.cosines = reinterpret_cast<float*>(allocate_(static_cast<std::int64_t>(values.size() * sizeof(float))));
    if (table.cosines == nullptr) throw JobError("cudaMalloc: no device memory for the table of rotary positions");
    table.sines = table.cosines + elements;
    // A copy from pageable memory may land after the call, and streams that do not block do not wait for it by
    // themselves.
    copy(stream, table.cosines, values.data(), static_cast<std::int64_t>(values.size() * sizeof(float)));
    check_cuda(cudaStreamSynchronize(stream_of(stream)), "cudaStreamSynchronize");
    return table;
}

void CudaOperators::rotate(k::StreamHandle stream, const Operator& op, const OperatorContext& context, float* qkv) {
    const RotaryTable table = rotary_table(stream, *context.model, op.sequence, op.head_dim);
    k::rotate(stream, head_shape(op), op.micro_batch, position_shape(op, context).first_position, table.cosines,
              table.sines, op.kind == OpKind::rope_backward, qkv);
}

void CudaOperators::run(k::StreamHandle stream, const Operator& op, const OperatorPointers& at,
                        const OperatorContext& context) {
    ORRERY_CHECK(context.model != nullptr, "an operator context without a model");
    const Operands o(op, at);
    if (op.overwrites_gradients) {
        for_each_overwritten(op, [&](std::size_t i, std::int64_t elements) {
            if (at.out.at(i) != nullptr) clear(stream, at.out.at(i), elements * size_of(at.out_dtype.at(i)));
        });
    }
    switch (op.kind) {
        case OpKind::embedding_forward:
        case OpKind::embedding_backward:
        case OpKind::position_forward:
        case OpKind::position_backward:
            return run_embedding(stream, op, o, context);
        case OpKind::layer_norm_forward:
        case OpKind::layer_norm_backward:
        case OpKind::rms_norm_forward:
        case OpKind::rms_norm_backward:
            return run_norm(stream, op, o, context.model->norm_epsilon);
        case OpKind::linear_forward:
        case OpKind::linear_backward_input:
        case OpKind::linear_backward_weight:
            return run_linear(stream, op, o, products_);
        case OpKind::rope_forward:
        case OpKind::rope_backward:
            o.must_be_same(0, 0);
            return rotate(stream, op, context, o.out(0));
        case OpKind::attention_forward:
        case OpKind::attention_backward:
            return run_attention(stream, op, o, *context.model);
        case OpKind::copy_columns:
        case OpKind::add_columns:
            return run_columns(stream, op, o, at);
        case OpKind::gelu_forward:
        case OpKind::gelu_backward:
        case OpKind::swiglu_forward:
        case OpKind::swiglu_backward:
            return run_activation(stream, op, o);
        case OpKind::residual_add:
            return run_residual_add(stream, op, o);
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
            throw_bug(__FILE__, __LINE__, "OpKind", std::string(name_of(op.kind)) + " does not run on CUDA");
    }
}

}  // namespace orrery::exec
