#include "exec/cuda/cuda_operators.h"

#include <cuda_runtime.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "exec/cuda/activations.h"
#include "exec/cuda/check.h"
#include "exec/cuda/cross_entropy.h"
#include "exec/cuda/expert_rows.h"
#include "exec/cuda/float_operands.h"
#include "exec/cuda/linear.h"
#include "exec/cuda/updates.h"
#include "exec/operands.h"
#include "exec/operator_rows.h"
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

void run_attention(k::StreamHandle stream, const Operator& op, const Operands& o, const models::ModelSpec& model) {
    if (op.kind == OpKind::attention_forward) {
        o.must_be_absent(o.optional_out(2));
        return k::attention_forward(stream, attention_shape(op, model), o.in(0), o.out(0), o.out(1));
    }
    o.must_be_absent(o.optional_in(4));
    k::attention_backward(stream, attention_shape(op, model), o.in(0), o.in(1), o.in(2), o.in(3), o.out(0));
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

void run_columns(k::StreamHandle stream, const Operator& op, const Operands& o, const OperatorPointers& at) {
    const kernels::ConstRows from{o.in(0) + op.from_column, at.in_width[0]};
    const kernels::Rows to{o.out(0) + op.to_column, at.out_width[0]};
    const auto columns = op.kind == OpKind::copy_columns ? k::copy_columns : k::add_columns;
    columns(stream, op.rows, op.n, from, to);
}

void run_optimizer(k::StreamHandle stream, const Operator& op, const Operands& o, const OperatorPointers& at,
                   const OperatorContext& context, double* partial_sums) {
    switch (op.kind) {
        case OpKind::gradient_norm:
            return run_gradient_norm(stream, o, at, context, partial_sums);
        case OpKind::gradient_scale:
            return run_gradient_scale(stream, o, at, context);
        case OpKind::clear:
            return clear(stream, o.any_out(0), op.elements * size_of(o.out_type(0)));
        default:
            return run_update(stream, op, o, at, context);
    }
}

void run_copy(k::StreamHandle stream, const Operator& op, const Operands& o, const OperatorContext& context) {
    if (op.offloaded) return run_offloaded_copy(stream, op, o, context);
    copy(stream, o.any_out(0), o.any_in(0), static_cast<std::int64_t>(op.bytes_read));
}

void run_cast(k::StreamHandle stream, const Operator& op, const Operands& o, const OperatorPointers& at) {
    const auto is_float = [](DType type) { return type == DType::fp32 || type == DType::bf16; };
    const DType from = o.in_type(0), to = o.out_type(0);
    if (from == to) return copy(stream, o.any_out(0), o.any_in(0), op.elements * size_of(from));
    ORRERY_CHECK(is_float(from) && is_float(to), "a cast that is only simulated");
    k::cast(stream, op.elements, FloatOperands(o, at).in(0), FloatOperands(o, at).out(0));
}

}  // namespace

CudaOperators::CudaOperators(std::function<std::byte*(std::int64_t)> allocate)
    : allocate_(std::move(allocate)), products_(allocate_) {
    constexpr std::int64_t kBytes = k::kPartialSums * static_cast<std::int64_t>(sizeof(double));
    partial_sums_ = reinterpret_cast<double*>(allocate_(kBytes));
    if (partial_sums_ == nullptr) throw JobError("cudaMalloc: no device memory for partial sums");
}

const float* CudaOperators::zeros(std::int64_t elements) {
    if (zeros_ >= elements) return zeros_memory_;
    zeros_memory_ = reinterpret_cast<float*>(allocate_(elements * static_cast<std::int64_t>(sizeof(float))));
    if (zeros_memory_ == nullptr) throw JobError("cudaMalloc: no device memory for the correction of router scores");
    zeros_ = elements;
    return zeros_memory_;
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

void CudaOperators::run_routing(k::StreamHandle stream, const Operator& op, const Operands& o,
                                const OperatorPointers& at, const models::ModelSpec& model) {
    switch (op.kind) {
        case OpKind::router_forward:
        case OpKind::router_backward:
            return run_router(stream, op, o, at, model, model.moe.score_correction_bias ? zeros(op.n) : nullptr);
        case OpKind::group_by_expert:
        case OpKind::group_by_source:
            return run_regrouping(stream, op, o, at);
        default:
            return run_permutation(stream, op, o, at, model);
    }
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
    switch (models::row_of(op.kind).work) {
        case WorkClass::product:
            return run_linear(stream, op, o, at, products_);
        case WorkClass::expert_product:
            return run_expert_linear(stream, op, o, at);
        case WorkClass::routing:
            return run_routing(stream, op, o, at, *context.model);
        case WorkClass::loss:
            return run_cross_entropy(stream, op, o, at, context);
        case WorkClass::optimizer:
            return run_optimizer(stream, op, o, at, context, partial_sums_);
        case WorkClass::cast:
            return run_cast(stream, op, o, at);
        case WorkClass::copy:
            return run_copy(stream, op, o, context);
        default:
            break;
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
        case OpKind::relu_forward:
        case OpKind::relu_backward:
        case OpKind::gelu_forward:
        case OpKind::gelu_backward:
        case OpKind::swiglu_forward:
        case OpKind::swiglu_backward:
            return run_activation(stream, op, o, at);
        case OpKind::gate_rows_forward:
        case OpKind::gate_rows_backward:
            return run_gate(stream, op, o, at);
        case OpKind::residual_add:
            return run_residual_add(stream, op, o);
        case OpKind::bias_backward:
            return run_bias_backward(stream, op, o, at);
        case OpKind::accumulate:
            return k::add(stream, op.elements, FloatOperands(o, at).in(0), FloatOperands(o, at).out(0));
        default:
            throw_bug(__FILE__, __LINE__, "OpKind", std::string(name_of(op.kind)) + " does not run on CUDA");
    }
}

}  // namespace orrery::exec
