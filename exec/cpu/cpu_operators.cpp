#include "exec/cpu/cpu_operators.h"

#include <cstring>
#include <string>

#include "core/error.h"
#include "exec/cpu/dropout.h"
#include "exec/cpu/expert_rows.h"
#include "exec/cpu/sequence_parts.h"
#include "exec/cpu/updates.h"
#include "exec/fused_operators.h"
#include "exec/operands.h"
#include "exec/operator_rows.h"
#include "exec/operator_shapes.h"
#include "models/operator_table.h"

namespace orrery::exec {
namespace {

using models::Operator;
using models::OpKind;
using models::WorkClass;

[[noreturn]] void refuse(const Operator& op) {
    throw_bug(__FILE__, __LINE__, "OpKind", std::string(name_of(op.kind)) + " is simulated only");
}

void run_embedding(const Operator& op, const Operands& o, const OperatorPointers& at, const OperatorContext& context) {
    switch (op.kind) {
        case OpKind::load_tokens:
        case OpKind::load_targets:
            ORRERY_CHECK(at.out[0] != nullptr, "an operator that loads tokens has no output");
            return load_rows(op, context, static_cast<std::int32_t*>(at.out[0]));
        case OpKind::embedding_forward:
            return kernels::embedding_forward(embedding_shape(op, context), o.integers(0), o.in(1), o.out(0));
        case OpKind::embedding_backward:
            return kernels::embedding_backward(embedding_shape(op, context), o.in(0), o.integers(1), o.out(0));
        case OpKind::position_forward:
            return run_position_forward(op, o, context);
        case OpKind::position_backward:
            return run_position_backward(op, o, context);
        default:
            refuse(op);
    }
}

/// A GEMM may read and write some columns of wider rows.
void run_linear(const Operator& op, const Operands& o, const OperatorPointers& at) {
    check_columns(op, at);
    const kernels::LinearShape shape = linear_shape(op);
    if (op.kind == OpKind::linear_forward) {
        return kernels::linear_forward(shape, {o.in(0), at.in_width[0]}, o.in(1), o.optional_in(2),
                                       {o.out(0) + op.to_column, at.out_width[0]});
    }
    const kernels::ConstRows dy{o.in(0) + op.from_column, at.in_width[0]};
    if (op.kind == OpKind::linear_backward_input) {
        return kernels::linear_backward_input(shape, dy, o.in(1), {o.out(0), at.out_width[0]});
    }
    kernels::linear_backward_weight(shape, dy, {o.in(1), at.in_width[1]}, o.out(0), o.optional_out(1));
}

void run_norm_of_rows(const Operator& op, const Operands& o, const OperatorPointers& at, double epsilon) {
    const kernels::NormShape shape = norm_shape(op, at);
    switch (op.kind) {
        case OpKind::layer_norm_forward:
            return kernels::layer_norm_forward(shape, epsilon, o.in(0), o.in(1), o.in(2), o.out(0), o.out(1));
        case OpKind::layer_norm_backward:
            return kernels::layer_norm_backward(shape, o.in(0), o.in(1), o.in(2), o.in(3), o.optional_in(4), o.out(0),
                                                o.out(1), o.out(2));
        case OpKind::rms_norm_forward:
            return kernels::rms_norm_forward(shape, epsilon, o.in(0), o.in(1), o.out(0), o.out(1));
        default:
            return kernels::rms_norm_backward(shape, o.in(0), o.in(1), o.in(2), o.in(3), o.optional_in(4), o.out(0),
                                              o.out(1));
    }
}

void run_norm(const Operator& op, const Operands& o, const OperatorPointers& at, double epsilon) {
    switch (op.kind) {
        case OpKind::layer_norm_forward:
        case OpKind::layer_norm_backward:
        case OpKind::rms_norm_forward:
        case OpKind::rms_norm_backward:
            return run_norm_of_rows(op, o, at, epsilon);
        case OpKind::head_norm_forward:
            return kernels::head_norm_forward(head_shape(op), epsilon, o.in(0), o.in(1), o.in(2), o.out(0), o.out(1));
        case OpKind::head_norm_backward:
            return kernels::head_norm_backward(head_shape(op), o.in(0), o.in(1), o.in(2), o.in(3), o.in(4), o.out(0),
                                               o.out(1), o.out(2));
        default:
            refuse(op);
    }
}

void run_attention_memory(const Operator& op, const Operands& o, const OperatorPointers& at,
                          const OperatorContext& context) {
    switch (op.kind) {
        case OpKind::attention_merge:
            return run_attention_merge(op, o);
        case OpKind::copy_columns:
        case OpKind::add_columns:
            return run_columns(op, o, at);
        case OpKind::repeat_heads:
        case OpKind::sum_repeated_heads:
            return run_repetition(op, o, at);
        case OpKind::cut_heads:
        case OpKind::join_heads:
        case OpKind::join_sequence:
        case OpKind::cut_sequence:
            return run_relay(op, o, at, context);
        default:
            refuse(op);
    }
}

bool is_rotation(const Operator& op) {
    return op.kind == OpKind::rope_forward || op.kind == OpKind::rope_backward;
}

/// Rotary embedding of multi-head latent attention: reads the projections, of which the third has the shared key behind
/// the latent, and writes q, k and v as attention reads them. The backward pass goes the other way.
void run_latent_rotation(const Operator& op, const Operands& o, const OperatorPointers& at,
                         const models::LatentAttention& latent, const kernels::Rotation& rotation) {
    const kernels::LatentHeads shape = latent_heads(op, latent);
    if (op.kind == OpKind::rope_forward) {
        kernels::latent_rotate_forward(shape, rotation, o.in(0), o.in(1),
                                       {o.in(2) + latent.kv_lora_rank, at.in_width[2]}, o.out(0));
    } else {
        kernels::latent_rotate_backward(shape, rotation, o.in(0), o.out(0), o.out(1), {o.out(2), at.out_width[2]});
    }
}

void run_elementwise(const Operator& op, const Operands& o, const OperatorPointers& at,
                     const OperatorContext& context) {
    namespace k = kernels;
    switch (op.kind) {
        case OpKind::gelu_forward:
            return k::gelu_forward(rows_of(op, at, 1) * op.n, o.in(0), o.out(0));
        case OpKind::gelu_backward:
            return k::gelu_backward(rows_of(op, at, 2) * op.n, o.in(0), o.in(1), o.out(0));
        case OpKind::relu_forward:
            return k::relu_forward(rows_of(op, at, 1) * op.n, o.in(0), o.out(0));
        case OpKind::relu_backward:
            return k::relu_backward(rows_of(op, at, 2) * op.n, o.in(0), o.in(1), o.out(0));
        case OpKind::swiglu_forward:
            return k::swiglu_forward(rows_of(op, at, 1), op.n, o.in(0), o.out(0));
        case OpKind::swiglu_backward:
            return k::swiglu_backward(rows_of(op, at, 2), op.n, o.in(0), o.in(1), o.out(0));
        case OpKind::gate_rows_forward:
            return k::sigmoid_scale_forward(op.rows, op.k, o.in(0), o.in(1), o.out(0));
        case OpKind::gate_rows_backward:
            return k::sigmoid_scale_backward(op.rows, op.k, o.in(0), o.in(1), o.in(2), o.out(0), o.out(1));
        case OpKind::residual_add:
            return run_residual_add(op, o, at, context);
        case OpKind::residual_add_backward:
            return run_residual_add_backward(op, o, context);
        case OpKind::bias_backward:
            return k::bias_backward(op.rows, op.n, {o.in(0), op.n}, o.out(0));
        case OpKind::accumulate:
            return k::add(op.elements, o.in(0), o.out(0));
        default:
            refuse(op);
    }
}

void run_routing(const Operator& op, const Operands& o, const models::ModelSpec& model) {
    switch (op.kind) {
        case OpKind::router_forward:
        case OpKind::router_backward:
            return run_router(op, o, model);
        case OpKind::permute_forward:
        case OpKind::permute_backward:
        case OpKind::combine_forward:
        case OpKind::combine_backward:
            return run_permutation(op, o, model);
        case OpKind::group_by_expert:
        case OpKind::group_by_source:
            return run_regrouping(op, o);
        default:
            refuse(op);
    }
}

void run_cross_entropy_loss(const Operator& op, const Operands& o) {
    if (op.sources == 0) return kernels::cross_entropy_loss(op.rows, o.in(0), o.in(1), o.out(0), o.loss(1));
    kernels::cross_entropy_loss_of_parts(op.rows, op.sources, op.n, o.in(0), o.in(1), o.integers(2), o.out(0),
                                         o.loss(1));
}

void run_cross_entropy_backward(const Operator& op, const Operands& o, const OperatorContext& context) {
    o.must_be_same(0, 0);
    const auto scale = static_cast<float>(context.loss_scale);
    const kernels::VocabShard shard = vocab_shard(op, context);
    if (o.optional_in(3) == nullptr) {
        kernels::cross_entropy_backward(shard, scale, o.in(1), o.integers(2), o.out(0));
    } else {
        kernels::cross_entropy_backward_of_exponentials(shard, scale, o.in(3), o.in(1), o.integers(2), o.out(0));
    }
}

void run_cross_entropy_correct(const Operator& op, const Operands& o, const OperatorContext& context) {
    o.must_be_same(0, 0);
    kernels::cross_entropy_correct(vocab_shard(op, context), op.k, static_cast<float>(context.loss_scale), o.in(1),
                                   o.in(2), o.integers(3), o.in(4), o.out(0));
}

void run_cross_entropy(const Operator& op, const Operands& o, const OperatorContext& context) {
    switch (op.kind) {
        case OpKind::cross_entropy_max:
            return kernels::cross_entropy_max(vocab_shard(op, context), o.in(0), o.out(0));
        case OpKind::cross_entropy_sum:
            return kernels::cross_entropy_sum(vocab_shard(op, context), o.in(0), o.in(1), o.integers(2), o.out(0),
                                              o.optional_out(1));
        case OpKind::cross_entropy_loss:
            return run_cross_entropy_loss(op, o);
        case OpKind::cross_entropy_backward:
            return run_cross_entropy_backward(op, o, context);
        case OpKind::cross_entropy_correct:
            return run_cross_entropy_correct(op, o, context);
        default:
            refuse(op);
    }
}

void run_clear(const Operator& op, const Operands& o) {
    std::memset(o.any_out(0), 0, static_cast<std::size_t>(op.elements * size_of(o.out_type(0))));
}

void run_optimizer(const Operator& op, const Operands& o, const OperatorContext& context) {
    switch (op.kind) {
        case OpKind::adamw:
            return run_adamw(op, o, context);
        case OpKind::sgd_momentum:
            return run_sgd_momentum(op, o, context);
        case OpKind::gradient_norm:
            return run_gradient_norm(o, context);
        case OpKind::gradient_scale:
            return run_gradient_scale(o, context);
        case OpKind::clear:
            return run_clear(op, o);
        default:
            refuse(op);
    }
}

void run_cast(const Operator& op, const Operands& o) {
    const DType from = o.in_type(0), to = o.out_type(0);
    if (from == DType::fp32 && to == DType::bf16) return kernels::cast_to_bf16(op.elements, o.in(0), o.out_bf16(0));
    if (from == DType::bf16 && to == DType::fp32) return kernels::cast_from_bf16(op.elements, o.in_bf16(0), o.out(0));
    ORRERY_CHECK(from == to, "a cast that is only simulated");
    const auto bytes = static_cast<std::size_t>(op.elements * size_of(from));
    if (o.any_in(0) != o.any_out(0)) std::memcpy(o.any_out(0), o.any_in(0), bytes);
}

void run_copy(const Operator& op, const Operands& o, const OperatorContext& context) {
    if (op.offloaded) return run_offloaded_copy(op, o, context);
    std::memcpy(o.any_out(0), o.any_in(0), static_cast<std::size_t>(op.bytes_read));
}

/// Zeroes the gradients that an operator overwrites, because kernels only add to gradients.
void clear_overwritten(const Operator& op, const OperatorPointers& at) {
    for_each_overwritten(op, [&](std::size_t i, std::int64_t elements) {
        if (at.out.at(i) != nullptr) kernels::fill(elements, 0.0F, static_cast<float*>(at.out.at(i)));
    });
}

}  // namespace

CpuOperators::CpuOperators() {
    kernels::set_blas_threads(1);
}

const CpuOperators::RotaryTable& CpuOperators::rotary_table(const models::ModelSpec& model, std::int64_t sequence,
                                                            std::int64_t width) {
    if (rotary_.sequence == sequence && rotary_.width == width) return rotary_;
    const auto elements = static_cast<std::size_t>(sequence * (width / 2));
    rotary_ = {sequence, width, std::vector<float>(elements), std::vector<float>(elements)};
    kernels::rotary_table(rotary_frequencies(model), sequence, width, rotary_.cosines.data(), rotary_.sines.data());
    return rotary_;
}

void CpuOperators::rotate(const Operator& op, const Operands& o, const OperatorPointers& at,
                          const OperatorContext& context) {
    const models::ModelSpec& model = *context.model;
    const std::int64_t width = model.rotary_width();
    const RotaryTable& table = rotary_table(model, op.sequence, width);
    const std::vector<kernels::PositionRun> positions = positions_of(op, context);
    const kernels::Rotation rotation{.positions = positions,
                                     .micro_batch = op.micro_batch,
                                     .width = width,
                                     .cosines = table.cosines.data(),
                                     .sines = table.sines.data()};
    if (model.has_latent_attention()) return run_latent_rotation(op, o, at, model.latent, rotation);
    o.must_be_same(0, 0);
    kernels::rotate(head_shape(op), rotation, op.kind == OpKind::rope_backward, o.out(0));
}

void CpuOperators::run(const Operator& op, const OperatorPointers& at, const OperatorContext& context) {
    if (op.is_fused()) {
        for (const OperatorPart& part : parts_of_fused(op, at)) run(part.op, part.at, context);
        return;
    }
    if (op.takes_any_type() || !has_bf16(at)) return run_in_fp32(op, at, context);
    run_in_fp32(op, copies_.make(at), context);
    copies_.write_back();
}

void CpuOperators::run_in_fp32(const Operator& op, const OperatorPointers& at, const OperatorContext& context) {
    ORRERY_CHECK(context.model != nullptr, "an operator context without a model");
    const models::ModelSpec& model = *context.model;
    const Operands o(op, at);
    if (op.overwrites_gradients) clear_overwritten(op, at);
    switch (models::row_of(op.kind).work) {
        case WorkClass::embedding:
            return run_embedding(op, o, at, context);
        case WorkClass::norm:
            return run_norm(op, o, at, model.norm_epsilon);
        case WorkClass::product:
            return run_linear(op, o, at);
        case WorkClass::attention:
            return run_attention(op, o, at, context);
        case WorkClass::attention_memory:
            return run_attention_memory(op, o, at, context);
        case WorkClass::elementwise:
            return is_rotation(op) ? rotate(op, o, at, context) : run_elementwise(op, o, at, context);
        case WorkClass::routing:
            return run_routing(op, o, model);
        case WorkClass::expert_product:
            return run_expert_linear(op, o);
        case WorkClass::loss:
            return run_cross_entropy(op, o, context);
        case WorkClass::optimizer:
            return run_optimizer(op, o, context);
        case WorkClass::cast:
            return run_cast(op, o);
        case WorkClass::copy:
            return run_copy(op, o, context);
        case WorkClass::host:  // nothing to do: the backend has waited for the dependencies
            return;
        default:
            refuse(op);
    }
}

}  // namespace orrery::exec
