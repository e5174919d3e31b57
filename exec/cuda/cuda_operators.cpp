#include "exec/cuda/cuda_operators.h"

#include <cuda_runtime.h>

#include <string>

#include "core/error.h"
#include "exec/cuda/activations.h"
#include "exec/cuda/check.h"
#include "exec/cuda/cross_entropy.h"
#include "exec/cuda/device_operands.h"
#include "exec/cuda/dropout.h"
#include "exec/cuda/expert_rows.h"
#include "exec/cuda/linear.h"
#include "exec/cuda/sequence_parts.h"
#include "exec/cuda/updates.h"
#include "exec/operator_shapes.h"
#include "kernels/cuda/flat.h"
#include "kernels/cuda/kernels.h"
#include "models/operator_table.h"

namespace orrery::exec {
namespace {

namespace k = kernels::cuda;
using models::Operator;
using models::OpKind;
using models::WorkClass;

[[noreturn]] void refuse(const Operator& op) {
    throw_bug(__FILE__, __LINE__, "OpKind", std::string(name_of(op.kind)) + " does not run on CUDA");
}

/// Of the current device, times ten.
std::int64_t capability_of_device() {
    int device = 0, major = 0, minor = 0;
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
    check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
    return 10 * major + minor;
}

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

k::AddedRows added_rows(const Operator& op, const DeviceOperands& o) {
    if (!op.is_fused()) return {};
    return {o.floats_in(3), o.optional_floats_in(4), o.floats_out(2)};
}

void run_norm(k::StreamHandle stream, const Operator& op, const DeviceOperands& o, const OperatorPointers& at,
              double epsilon) {
    switch (op.kind) {
        case OpKind::layer_norm_forward:
            return k::layer_norm_forward(stream, norm_shape(op, at), epsilon, o.floats_in(0), o.floats_in(1),
                                         o.floats_in(2), o.floats_out(0), o.out(1), added_rows(op, o));
        case OpKind::layer_norm_backward:
            return k::layer_norm_backward(stream, norm_shape(op, at), o.floats_in(0), o.floats_in(1), o.floats_in(2),
                                          o.in(3), o.optional_floats_in(4), o.floats_out(0), o.floats_out(1),
                                          o.floats_out(2));
        case OpKind::rms_norm_forward:
            return k::rms_norm_forward(stream, norm_shape(op, at), epsilon, o.floats_in(0), o.floats_in(1),
                                       o.floats_out(0), o.out(1), added_rows(op, o));
        case OpKind::rms_norm_backward:
            return k::rms_norm_backward(stream, norm_shape(op, at), o.floats_in(0), o.floats_in(1), o.floats_in(2),
                                        o.in(3), o.optional_floats_in(4), o.floats_out(0), o.floats_out(1));
        case OpKind::head_norm_forward:
            return k::head_norm_forward(stream, head_shape(op), epsilon, o.floats_in(0), o.floats_in(1), o.floats_in(2),
                                        o.floats_out(0), o.out(1));
        default:
            return k::head_norm_backward(stream, head_shape(op), o.floats_in(0), o.floats_in(1), o.floats_in(2),
                                         o.floats_in(3), o.in(4), o.floats_out(0), o.floats_out(1), o.floats_out(2));
    }
}

/// Table lookups: token and position embeddings. `scratch` returns memory of so many bytes.
void run_embedding(k::StreamHandle stream, const Operator& op, const DeviceOperands& o, const OperatorContext& context,
                   const std::function<std::byte*(std::int64_t bytes)>& scratch) {
    switch (op.kind) {
        case OpKind::embedding_forward:
            return k::embedding_forward(stream, embedding_shape(op, context), o.integers(0), o.floats_in(1),
                                        o.floats_out(0));
        case OpKind::embedding_backward:
            return k::embedding_backward(stream, embedding_shape(op, context), o.floats_in(0), o.integers(1),
                                         o.floats_out(0), scratch(k::sort_bytes(op.rows)));
        case OpKind::position_forward:
            return run_position_forward(stream, op, o, context);
        default:
            return run_position_backward(stream, op, o, context);
    }
}

void run_cast(k::StreamHandle stream, const Operator& op, const DeviceOperands& o) {
    const auto is_float = [](DType type) { return type == DType::fp32 || type == DType::bf16; };
    const DType from = o.in_type(0), to = o.out_type(0);
    if (from == to) return copy(stream, o.any_out(0), o.any_in(0), op.elements * size_of(from));
    ORRERY_CHECK(is_float(from) && is_float(to), "a cast that is only simulated");
    k::cast(stream, op.elements, o.floats_in(0), o.floats_out(0));
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

bool is_rotation(const Operator& op) {
    return op.kind == OpKind::rope_forward || op.kind == OpKind::rope_backward;
}

void run_elementwise(k::StreamHandle stream, const Operator& op, const DeviceOperands& o, const OperatorPointers& at,
                     const OperatorContext& context) {
    switch (op.kind) {
        case OpKind::relu_forward:
        case OpKind::relu_backward:
        case OpKind::gelu_forward:
        case OpKind::gelu_backward:
        case OpKind::swiglu_forward:
        case OpKind::swiglu_backward:
            return run_activation(stream, op, o, at);
        case OpKind::gate_rows_forward:
        case OpKind::gate_rows_backward:
            return run_gate(stream, op, o);
        case OpKind::residual_add:
            return run_residual_add(stream, op, o, at, context);
        case OpKind::residual_add_backward:
            return run_residual_add_backward(stream, op, o, context);
        case OpKind::bias_backward:
            return run_bias_backward(stream, op, o);
        case OpKind::accumulate:
            return k::add(stream, op.elements, o.floats_in(0), o.floats_out(0));
        default:
            refuse(op);
    }
}

void run_optimizer(k::StreamHandle stream, const Operator& op, const DeviceOperands& o, const OperatorContext& context,
                   double* partial_sums) {
    switch (op.kind) {
        case OpKind::adamw:
        case OpKind::sgd_momentum:
            return run_update(stream, op, o, context);
        case OpKind::gradient_norm:
            return run_gradient_norm(stream, o, context, partial_sums);
        case OpKind::gradient_scale:
            return run_gradient_scale(stream, o, context);
        case OpKind::clear:
            return clear(stream, o.any_out(0), op.elements * size_of(o.out_type(0)));
        default:
            refuse(op);
    }
}

}  // namespace

CudaOperators::CudaOperators(std::function<std::byte*(std::int64_t)> allocate)
    : compute_capability_(capability_of_device()),
      allocate_([this, allocate = std::move(allocate)](std::int64_t bytes) {
          ORRERY_CHECK(!is_prepared_, "an operator takes device memory that was not prepared");
          return allocate(bytes);
      }),
      tables_(allocate_, [this](std::int64_t bytes) { return small(bytes); }),
      products_({.allocate = allocate_,
                 .workspace_bytes = program::gemm_workspace_bytes(compute_capability_),
                 .most_cut = program::kMostCutElements}) {
    partial_sums_ = reinterpret_cast<double*>(small(k::kPartialSums * static_cast<std::int64_t>(sizeof(double))));
}

std::byte* CudaOperators::small(std::int64_t bytes) {
    constexpr std::int64_t kAlignment = 256, kAll = program::KernelMemory::kSmallBytes;
    if (small_ == nullptr) small_ = allocate_(kAll);
    if (small_ == nullptr) throw JobError("cudaMalloc: no device memory for kernels");
    ORRERY_CHECK(small_bytes_ + bytes <= kAll, "kernels need more small memory than there is");
    std::byte* const memory = small_ + small_bytes_;
    small_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return memory;
}

void CudaOperators::prepare(const program::KernelMemory& memory, const models::ModelSpec& model,
                            const std::function<k::StreamHandle(program::Stream)>& stream_of) {
    for (const program::Stream stream : program::kStreams) {
        const program::KernelMemory::Products& products = memory.products[stream];
        if (products.any) products_.prepare(stream_of(stream), products.cut_elements);
        const std::int64_t bytes = memory.scratch_bytes[stream];
        if (bytes > 0) static_cast<void>(scratch(stream_of(stream), bytes));
    }
    for (const auto& [positions, width] : memory.rotary_tables) {
        static_cast<void>(tables_.rotary(stream_of(program::Stream::compute), model, positions, width));
    }
    is_prepared_ = true;
}

std::byte* CudaOperators::scratch(k::StreamHandle stream, std::int64_t bytes) {
    Scratch& own = scratch_[stream.stream];
    if (own.bytes >= bytes) return own.memory;
    own.memory = allocate_(bytes);
    if (own.memory == nullptr) {
        throw JobError("cudaMalloc: no device memory for " + std::to_string(bytes) +
                       " bytes of attention and embeddings");
    }
    own.bytes = bytes;
    return own.memory;
}

const float* CudaOperators::zeros(std::int64_t elements) {
    if (zeros_ >= elements) return zeros_memory_;
    zeros_memory_ = reinterpret_cast<float*>(small(elements * static_cast<std::int64_t>(sizeof(float))));
    zeros_ = elements;
    return zeros_memory_;
}

void CudaOperators::run_routing(k::StreamHandle stream, const Operator& op, const DeviceOperands& o,
                                const OperatorPointers& at, const OperatorContext& context) {
    const models::ModelSpec& model = *context.model;
    switch (op.kind) {
        case OpKind::router_forward:
        case OpKind::router_backward:
            return run_router(stream, op, o, model, model.moe.score_correction_bias ? zeros(op.n) : nullptr);
        case OpKind::permute_forward:
        case OpKind::permute_backward:
        case OpKind::combine_forward:
        case OpKind::combine_backward:
            return run_permutation(stream, op, o, model);
        case OpKind::group_by_expert:
        case OpKind::group_by_source:
            return run_regrouping(stream, op, o, at);
        default:
            refuse(op);
    }
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
    const auto scratch_of = [&](std::int64_t bytes) { return scratch(stream, bytes); };
    switch (models::row_of(op.kind).work) {
        case WorkClass::embedding:
            return run_embedding(stream, op, o, context, scratch_of);
        case WorkClass::norm:
            return run_norm(stream, op, o, at, context.model->norm_epsilon);
        case WorkClass::product:
            return run_linear(stream, op, o, at, products_);
        case WorkClass::attention:
            return run_attention(stream, op, o, at, context, tables_, scratch_of);
        case WorkClass::attention_memory:
            return run_attention_memory(stream, op, o, at, context);
        case WorkClass::elementwise:
            return is_rotation(op) ? run_rotation(stream, op, o, at, context, tables_)
                                   : run_elementwise(stream, op, o, at, context);
        case WorkClass::routing:
            return run_routing(stream, op, o, at, context);
        case WorkClass::expert_product:
            return run_expert_linear(stream, op, o, at);
        case WorkClass::loss:
            return run_cross_entropy(stream, op, o, context);
        case WorkClass::optimizer:
            return run_optimizer(stream, op, o, context, partial_sums_);
        case WorkClass::cast:
            return run_cast(stream, op, o);
        case WorkClass::copy:
            if (op.offloaded) return run_offloaded_copy(stream, op, o, context);
            return copy(stream, o.any_out(0), o.any_in(0), static_cast<std::int64_t>(op.bytes_read));
        default:
            refuse(op);
    }
}

}  // namespace orrery::exec
