// Closed forms of the bytes that a rank communicates in a step, without the buckets and units of data parallelism. What
// is gathered again in the backward pass follows Megatron-LM.
#include <algorithm>
#include <cmath>

#include "sim/program/validate_forms.h"
#include "sim/program/validate_rules.h"

namespace orrery::program::rules {

using models::BlockPart;

void ClosedForms::Traffic::add(GroupAxis axis, CommKind kind, std::int64_t elements, DType dtype, std::int64_t times) {
    if (elements > 0 && times > 0) bytes[{axis, kind}] += times * elements * size_of(dtype);
}

void ClosedForms::Traffic::gather(std::int64_t elements, DType dtype, std::int64_t times) {
    if (forms.sequence_parallel_) add(GroupAxis::tp, CommKind::all_gather, elements, dtype, times);
}
void ClosedForms::Traffic::gather_for_product(std::int64_t elements, DType dtype, std::int64_t times) {
    if (forms.sequence_parallel_ && forms.plan_.implementation.tensor_parallel.pipelined_gather) {
        add(GroupAxis::tp, CommKind::exchange, elements / forms.tp_, dtype, times * (forms.tp_ - 1));
    } else {
        gather(elements, dtype, times);
    }
}
void ClosedForms::Traffic::gather_in_backward(std::int64_t elements, DType dtype, std::int64_t times, bool in_pieces) {
    const models::TensorParallelChoices& choices = forms.plan_.implementation.tensor_parallel;
    const bool kept = choices.keeps_gathered_inputs && !(in_pieces && choices.pipelined_gather);
    if (!kept) gather(elements, dtype, times);
}
void ClosedForms::Traffic::reduce_partial_sums(std::int64_t elements, std::int64_t times) {
    if (forms.tp_ == 1) return;
    add(GroupAxis::tp, forms.sequence_parallel_ ? CommKind::reduce_scatter : CommKind::all_reduce, elements,
        forms.activation_, times);
}
void ClosedForms::Traffic::reduce_input_gradients(std::int64_t elements, std::int64_t times, std::int64_t products) {
    const bool separately =
        forms.plan_.implementation.tensor_parallel.reduces_inputs_apart && !forms.sequence_parallel_;
    reduce_partial_sums(elements, separately ? times * products : times);
}
void ClosedForms::Traffic::reduce_after_product(std::int64_t elements, std::int64_t times) {
    if (forms.sequence_parallel_ && forms.plan_.implementation.tensor_parallel.pipelined_gather) {
        add(GroupAxis::tp, CommKind::exchange, elements / forms.tp_, forms.activation_, times * (forms.tp_ - 1));
    } else {
        reduce_partial_sums(elements, times);
    }
}

DType ClosedForms::operand_type() const {
    const Fp8Scaling fp8 = plan_.training.precision.fp8;
    return fp8 == Fp8Scaling::none ? activation_ : models::operand_type(fp8);
}
std::int64_t ClosedForms::operand_width(std::int64_t width) const {
    return models::operand_bytes(plan_.training.precision.fp8, width);
}

bool ClosedForms::recomputes(BlockPart part) const {
    const MemorySavings& memory = plan_.training.memory;
    if (memory.recompute != Recompute::selective) return false;
    if (memory.recompute_parts.empty()) return part == BlockPart::attention_core;
    return std::find(memory.recompute_parts.begin(), memory.recompute_parts.end(), models::name_of(part)) !=
           memory.recompute_parts.end();
}

/// From the norm's output to the partial sums of the output projection. `again_projection`, `again_core`: 1 if the
/// backward pass recomputes that part, otherwise 0.
void ClosedForms::add_attention(Traffic& traffic, std::int64_t again_projection, std::int64_t again_core,
                                std::int64_t times) const {
    const std::int64_t h = model_.hidden;
    const std::int64_t forwards = times * (1 + again_projection), cores = times * (1 + again_core);
    std::int64_t q_width = heads_ * model_.head_dim, head = 2 * model_.head_dim, out_width = q_width;
    std::int64_t kv_heads = kv_heads_;
    if (model_.has_latent_attention()) {
        const models::LatentAttention& l = model_.latent;
        const std::int64_t q_in = l.q_lora_rank > 0 ? l.q_lora_rank : h;
        const std::int64_t latent = l.kv_lora_rank + l.rope_head_dim;
        traffic.gather_for_product(rows_ * operand_width(q_in), operand_type(), forwards);
        traffic.gather(rows_ * operand_width(latent), operand_type(), forwards);
        traffic.gather_in_backward(rows_ * operand_width(q_in), operand_type(), times);
        traffic.gather_in_backward(rows_ * operand_width(latent), operand_type(), times, false);  // never pipelined
        traffic.reduce_partial_sums(rows_ * q_in, times);
        traffic.reduce_partial_sums(rows_ * latent, times);
        kv_heads = heads_;
        q_width = heads_ * (l.nope_head_dim + l.rope_head_dim);
        head = l.nope_head_dim + l.rope_head_dim + l.v_head_dim;
        out_width = heads_ * l.v_head_dim;
    } else if (!(model_.parallel_residual && model_.shared_input_norm)) {  // else counted with the MLP
        traffic.gather_for_product(rows_ * operand_width(h), operand_type(), forwards);
        traffic.gather_in_backward(rows_ * operand_width(h), operand_type(), times);
        traffic.reduce_input_gradients(rows_ * h, times, attention_input_products());
    }
    if (cp_ == 1) return;
    const std::int64_t kv = rows_ * kv_heads * head;
    switch (plan_.parallelism.context_parallel) {
        case ContextParallel::ring:
            // cp - 1 exchanges of keys and values in each pass; in the backward pass, cp more for their gradients.
            traffic.add(GroupAxis::cp, CommKind::exchange, kv, activation_, cores * (cp_ - 1) + times * (2 * cp_ - 1));
            return;
        case ContextParallel::all_gather:
            traffic.add(GroupAxis::cp, CommKind::all_gather, cp_ * kv, activation_, cores + times);
            traffic.add(GroupAxis::cp, CommKind::reduce_scatter, cp_ * kv, activation_, times);
            return;
        case ContextParallel::ulysses: {
            const std::int64_t qkv = rows_ * (q_width + std::max(kv_heads, cp_) * head);
            traffic.add(GroupAxis::cp, CommKind::all_to_all, qkv, activation_, forwards + times);
            traffic.add(GroupAxis::cp, CommKind::all_to_all, rows_ * out_width, activation_, cores + times);
            return;
        }
    }
}

/// Dispatch and combine of tokens, forward and backward, and the shared experts.
void ClosedForms::add_experts(Traffic& traffic, bool recomputed, std::int64_t times) const {
    const models::MixtureOfExperts& moe = model_.moe;
    const ExpertLoad& load = plan_.training.expert_load;
    const MemorySavings& memory = plan_.training.memory;
    const std::int64_t h = model_.hidden;
    const bool full = recomputed && memory.recompute == Recompute::full;
    const std::int64_t experts = times * (full || (recomputed && recomputes(BlockPart::experts)) ? 2 : 1);
    const std::int64_t ep = plan_.parallelism.ep, etp = plan_.parallelism.etp;
    const std::int64_t chosen = rows_ / (sequence_parallel_ ? tp_ : 1) * moe.top_k;
    double factor = load.expected();
    if (ep == 1) {  // one rank holds all experts, so that the load cannot be uneven over ranks
        factor = load.capacity_factor <= 0 ? 1.0
                 : load.pads_to_capacity   ? load.capacity_factor
                                           : std::min(1.0, load.capacity_factor);
    }
    const auto received = static_cast<std::int64_t>(std::ceil(static_cast<double>(chosen) * factor - 1e-9));
    if (!load.pads_to_capacity) {  // the row counts of each expert
        if (ep > 1) traffic.add(GroupAxis::ep, CommKind::all_to_all, moe.expert_count, DType::int64, experts);
        if (etp > 1) traffic.add(GroupAxis::etp, CommKind::all_gather, moe.expert_count * etp, DType::int64, experts);
    }
    if (ep > 1) {  // dispatch and combine
        traffic.add(GroupAxis::ep, CommKind::all_to_all, received * h, activation_, 2 * (experts + times));
    }
    if (etp > 1) {
        traffic.add(GroupAxis::etp, CommKind::all_gather, received * etp * h, activation_, experts + times);
        traffic.add(GroupAxis::etp, CommKind::reduce_scatter, received * etp * h, activation_, experts + times);
    }
    if (moe.shared_ffn_hidden == 0) return;
    const bool again = full || (recomputed && recomputes(BlockPart::shared_expert));
    // Recomputation repeats the reduction of the shared expert's output only if the output is needed: for the gate's
    // gradient or, in full recomputation, for the operators after it.
    const bool needed =
        moe.shared_expert_gate || (full && masks_residuals()) || (full && !plan_.implementation.recompute_stops_early);
    const std::int64_t width = rows_ * operand_width(h);
    traffic.gather_for_product(width, operand_type(), times * (again ? 2 : 1));
    traffic.reduce_after_product(rows_ * h, times * (again && needed ? 2 : 1));
    traffic.gather_for_product(width, operand_type(), times);  // the gradient of the shared expert's output
    traffic.gather_in_backward(width, operand_type(), times);
    traffic.reduce_input_gradients(rows_ * h, times, mlp_input_products());
}

bool ClosedForms::masks_residuals() const {
    const models::KernelChoices& kernels = plan_.implementation.kernels;
    return plan_.training.dropout > 0 || (kernels.fused_residual && kernels.masks_without_dropout);
}

void ClosedForms::add_block(Traffic& traffic, bool experts, bool recomputed, std::int64_t times) const {
    const MemorySavings& memory = plan_.training.memory;
    const std::int64_t h = model_.hidden;
    const std::int64_t width = rows_ * operand_width(h);
    const DType type = operand_type();
    const bool full = recomputed && memory.recompute == Recompute::full;
    const auto again = [&](BlockPart part) { return std::int64_t{full || (recomputed && recomputes(part)) ? 1 : 0}; };
    add_attention(traffic, again(BlockPart::attention_projection), again(BlockPart::attention_core), times);
    // Full recomputation that stops early omits the block's last reduction, unless a norm or a mask comes after it.
    const bool last = full && (!plan_.implementation.recompute_stops_early || model_.post_norm || masks_residuals());
    if (full && memory.shards_checkpoints && rows_ % tp_ == 0) {
        traffic.add(GroupAxis::tp, CommKind::all_gather, rows_ * h, activation_, times);
    }
    if (model_.parallel_residual) {
        const BlockPart input = model_.shared_input_norm ? BlockPart::attention_projection : BlockPart::mlp_in;
        traffic.gather_for_product(width, type, times * (1 + again(input)));
        traffic.reduce_partial_sums(rows_ * h, times * (last ? 2 : 1));  // both branches at once
        traffic.gather_for_product(width, type, times);
        traffic.gather_in_backward(width, type, times);
        traffic.reduce_input_gradients(
            rows_ * h, times, mlp_input_products() + (model_.shared_input_norm ? attention_input_products() : 0));
        return;
    }
    // Full recomputation repeats the reduction of attention's output, which the MLP needs.
    traffic.reduce_after_product(rows_ * h, times * (full ? 2 : 1));
    traffic.gather_for_product(width, type, times);
    if (experts) {
        add_experts(traffic, recomputed, times);
        return;
    }
    traffic.gather_for_product(width, type, times * (1 + again(BlockPart::mlp_in)));
    traffic.reduce_after_product(rows_ * h, times * (last ? 2 : 1));
    traffic.gather_for_product(width, type, times);
    traffic.gather_in_backward(width, type, times);
    traffic.reduce_input_gradients(rows_ * h, times, mlp_input_products());
}

/// Embedding: the lookups are reduced in the forward pass and their gradient is gathered in the backward pass. Head:
/// its input is gathered, the gradient of the input is reduced, and the loss needs a maximum and two sums of each token
/// in fp32 or, with gathers_logits, all logits in the activations' type.
void ClosedForms::add_embedding_and_head(Traffic& traffic, const Chunk& chunk, std::int64_t times) const {
    const std::int64_t all = rows_ * model_.hidden;
    if (chunk.has_embedding) {
        traffic.reduce_partial_sums(all, times);
        traffic.gather(all, activation_, times);
    }
    if (!chunk.has_head) return;
    traffic.gather(all, activation_, times);
    traffic.gather_in_backward(all, activation_, times, false);  // never pipelined: only the GEMMs of blocks are
    traffic.reduce_partial_sums(all, times);
    if (tp_ == 1) return;
    const models::KernelChoices& kernels = plan_.implementation.kernels;
    if (kernels.gathers_logits && !kernels.fused_cross_entropy) {
        traffic.add(GroupAxis::tp, CommKind::all_gather, rows_ * padded_vocab_, activation_, times);
    } else {
        traffic.add(GroupAxis::tp, CommKind::all_reduce, 3 * rows_, DType::fp32, times);
    }
}

/// Over the pipeline's ranks. Output: X is broadcast, dX is reduced, and every rank's maximum and two sums of each
/// token are gathered in fp32. Input: the lookup is reduced and its gradient is broadcast.
void ClosedForms::add_vocabulary(Traffic& traffic, const Chunk& chunk, std::int64_t times) const {
    if (chunk.part == ChunkPart::stage) return;
    traffic.add(GroupAxis::pipeline, CommKind::broadcast, hidden_elements(), activation_, times);
    traffic.add(GroupAxis::pipeline, CommKind::reduce, hidden_elements(), activation_, times);
    if (chunk.part == ChunkPart::vocabulary_input) return;
    traffic.add(GroupAxis::pipeline, CommKind::all_gather, 3 * vocabulary_shards_ * rows_, DType::fp32, times);
}

void ClosedForms::add_transfers(Traffic& traffic, const RankClass& ranks) const {
    const ScheduleShape shape = shape_of(plan_);
    const std::int64_t elements = hidden_elements();
    const bool cut =
        plan_.implementation.pipeline.scatters_transfers && tp_ > 1 && !sequence_parallel_ && elements % tp_ == 0;
    for (const Chunk& chunk : ranks.chunks) {
        const std::int64_t times = passes(chunk);
        if (chunk.part != ChunkPart::stage) continue;
        const auto elsewhere = [&](std::int64_t stage) {
            return stage >= 0 && stage < virtual_stages(shape) &&
                   stage_holder(shape, stage, chunk.direction).rank != ranks.pp_index;
        };
        const auto transfer = [&](std::int64_t sender, CommKind forward, CommKind backward) {
            const StageHolder holder = stage_holder(shape, sender, chunk.direction);
            const bool up = chunk_place(shape, holder.rank, holder.chunk).up;
            const std::int64_t moved = cut ? elements / tp_ : elements;
            traffic.add(up ? GroupAxis::up_forward : GroupAxis::down_forward, forward, moved, activation_, times);
            traffic.add(up ? GroupAxis::up_backward : GroupAxis::down_backward, backward, moved, activation_, times);
            // One of the two transfers is received here, and its parts are gathered.
            if (cut) traffic.add(GroupAxis::tp, CommKind::all_gather, elements, activation_, times);
        };
        if (elsewhere(chunk.virtual_stage - 1)) transfer(chunk.virtual_stage - 1, CommKind::recv, CommKind::send);
        if (elsewhere(chunk.virtual_stage + 1)) transfer(chunk.virtual_stage, CommKind::send, CommKind::recv);
    }
}

/// Gradient sums over tensor-parallel ranks and over the copies of a tied embedding, and the gradient norm.
void ClosedForms::add_step_end(Traffic& traffic, const RankClass& ranks) const {
    const Parallelism& p = plan_.parallelism;
    const Precision& precision = plan_.training.precision;
    // If units are reduced into shards after each backward, this sum precedes each of those reductions.
    const auto sum = [&](ParameterRange range, GroupAxis axis) {
        for (const ChunkIndex c : ranks.chunks.indices()) {
            RankClass alone;
            alone.pp_index = ranks.pp_index;
            alone.chunks = {ranks.chunks[c]};
            std::int64_t elements = elements_of(alone)[range];
            for (const Parameter& parameter : ranks.parameters) {  // padding is summed too
                const bool here = parameter.range == range && parameter.chunk == c;
                if (here) elements += parameter.padding;
            }
            traffic.add(axis, CommKind::all_reduce, elements, sharding_.gradient_dtype,
                        sharding_.reduces_units ? passes(ranks.chunks[c]) : 1);
        }
    };
    if (tp_ > 1) sum(ParameterRange::tensor_sum, GroupAxis::tp);
    if (kv_copies_ > 1) sum(ParameterRange::kv_sum, GroupAxis::kv);
    if (sums_tied_copies(ranks)) {
        std::int64_t weight = padded_vocab_ / tp_ * model_.hidden;
        if (sharding_.reduces_units) {  // padding is summed too
            for (const Parameter& parameter : ranks.parameters) {
                if (parameter.name == kTiedWeight) weight += parameter.padding;
            }
            weight /= sharding_.dense_shards;
        }
        traffic.add(GroupAxis::embedding, CommKind::all_reduce, weight,
                    sharding_.reduces_units ? precision.gradient : sharding_.gradient_dtype);
    }
    if (plan_.training.optimizer.clip_norm <= 0 && !precision.loss_scaling) return;
    const bool everyone = sharding_.shards_states || (plan_.model.has_experts() && (p.ep > 1 || p.etp != p.tp));
    const std::int64_t others = everyone ? p.world_size() : p.tp * p.pp;
    if (others > 1) {
        traffic.add(everyone ? GroupAxis::world : GroupAxis::model, CommKind::all_reduce, 2, DType::fp64);
    }
}

BytesByKind ClosedForms::model_bytes(const RankClass& ranks) const {
    Traffic traffic{*this, {}};
    const MemorySavings& memory = plan_.training.memory;
    for (const Chunk& chunk : ranks.chunks) {
        const std::int64_t times = passes(chunk);
        // Blocks by whether they have experts (bit 1) and are recomputed (bit 0).
        std::array<std::int64_t, 4> blocks{};
        for (std::int64_t i = 0; i < chunk.block_count; ++i) {
            const bool experts = model_.is_expert_layer(chunk.first_block + i);
            const bool recomputed = memory.recompute_layers < 0 || i < memory.recompute_layers;
            ++blocks[(experts ? 2U : 0U) + (recomputed ? 1U : 0U)];
        }
        for (std::size_t kind = 0; kind < blocks.size(); ++kind) {
            if (blocks[kind] > 0) add_block(traffic, kind >= 2, kind % 2 == 1, blocks[kind] * times);
        }
        add_embedding_and_head(traffic, chunk, times);
        add_vocabulary(traffic, chunk, times);
    }
    add_transfers(traffic, ranks);
    add_step_end(traffic, ranks);
    return traffic.bytes;
}

}  // namespace orrery::program::rules
