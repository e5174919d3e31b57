// Closed forms of what a rank communicates in a step (Megatron-LM's rules for what is gathered
// again in the backward pass), buckets and units of data parallelism apart.
#include <algorithm>
#include <cmath>

#include "sim/program/validate_forms.h"
#include "sim/program/validate_rules.h"

namespace orrery::program::rules {

using models::BlockPart;

void Forms::Traffic::add(GroupAxis axis, CommKind kind, std::int64_t elements, DType dtype, std::int64_t times) {
    if (elements > 0 && times > 0) bytes[{axis, kind}] += times * elements * size_of(dtype);
}

/// Into a tensor-sharded region; without sequence parallelism every rank has all tokens there already.
void Forms::Traffic::gather(std::int64_t elements, DType dtype, std::int64_t times) {
    if (forms.sharded_) add(GroupAxis::tp, CommKind::all_gather, elements, dtype, times);
}
void Forms::Traffic::gather_for_product(std::int64_t elements, DType dtype, std::int64_t times) {
    if (forms.sharded_ && forms.plan_.implementation.tensor_parallel.pipelined_gather) {
        add(GroupAxis::tp, CommKind::exchange, elements / forms.t_, dtype, times * (forms.t_ - 1));
    } else {
        gather(elements, dtype, times);
    }
}
void Forms::Traffic::gather_again(std::int64_t elements, DType dtype, std::int64_t times, bool in_pieces) {
    const models::TensorParallelChoices& choices = forms.plan_.implementation.tensor_parallel;
    const bool kept = choices.keeps_gathered_inputs && !(in_pieces && choices.pipelined_gather);
    if (!kept) gather(elements, dtype, times);
}
/// Partial sums leave the region.
void Forms::Traffic::leave(std::int64_t elements, std::int64_t times) {
    if (forms.t_ == 1) return;
    add(GroupAxis::tp, forms.sharded_ ? CommKind::reduce_scatter : CommKind::all_reduce, elements, forms.activation_,
        times);
}
/// Gradients of an input that so many products read.
void Forms::Traffic::leave_inputs(std::int64_t elements, std::int64_t times, std::int64_t products) {
    const bool apart = forms.plan_.implementation.tensor_parallel.reduces_inputs_apart && !forms.sharded_;
    leave(elements, apart ? times * products : times);
}
void Forms::Traffic::leave_in_pieces(std::int64_t elements, std::int64_t times) {
    if (forms.sharded_ && forms.plan_.implementation.tensor_parallel.pipelined_gather) {
        add(GroupAxis::tp, CommKind::exchange, elements / forms.t_, forms.activation_, times * (forms.t_ - 1));
    } else {
        leave(elements, times);
    }
}

/// What a product reads is fp8 where the block's products are, or fp4, with its scales.
DType Forms::operand_type() const {
    const Fp8Scaling fp8 = plan_.training.precision.fp8;
    return fp8 == Fp8Scaling::none ? activation_ : models::operand_type(fp8);
}
std::int64_t Forms::operand_width(std::int64_t width) const {
    return models::operand_bytes(plan_.training.precision.fp8, width);
}

/// Selective recomputation: whether the part's values are computed again.
bool Forms::repeats(BlockPart part) const {
    const MemorySavings& memory = plan_.training.memory;
    if (memory.recompute != Recompute::selective) return false;
    if (memory.recompute_parts.empty()) return part == BlockPart::attention_core;
    return std::find(memory.recompute_parts.begin(), memory.recompute_parts.end(), models::name_of(part)) !=
           memory.recompute_parts.end();
}

/// Between the norm's output and the partial sums of the output product; `again_…`: 1 when that part's forward is
/// repeated in the backward pass.
void Forms::add_attention(Traffic& traffic, std::int64_t again_projection, std::int64_t again_core,
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
        traffic.gather_again(rows_ * operand_width(q_in), operand_type(), times);
        traffic.gather_again(rows_ * operand_width(latent), operand_type(), times, false);  // never in pieces
        traffic.leave(rows_ * q_in, times);
        traffic.leave(rows_ * latent, times);
        kv_heads = heads_;
        q_width = heads_ * (l.nope_head_dim + l.rope_head_dim);
        head = l.nope_head_dim + l.rope_head_dim + l.v_head_dim;
        out_width = heads_ * l.v_head_dim;
    } else if (!(model_.parallel_residual && model_.shared_input_norm)) {  // otherwise the MLP's input is this one
        traffic.gather_for_product(rows_ * operand_width(h), operand_type(), forwards);
        traffic.gather_again(rows_ * operand_width(h), operand_type(), times);
        traffic.leave_inputs(rows_ * h, times, attention_inputs());
    }
    if (c_ == 1) return;
    const std::int64_t kv = rows_ * kv_heads * head;
    switch (plan_.parallelism.context_parallel) {
        case ContextParallel::ring:
            // c - 1 exchanges of keys and values in each pass; their gradients travel all the way round.
            traffic.add(GroupAxis::cp, CommKind::exchange, kv, activation_, cores * (c_ - 1) + times * (2 * c_ - 1));
            return;
        case ContextParallel::all_gather:
            traffic.add(GroupAxis::cp, CommKind::all_gather, c_ * kv, activation_, cores + times);
            traffic.add(GroupAxis::cp, CommKind::reduce_scatter, c_ * kv, activation_, times);
            return;
        case ContextParallel::ulysses: {
            const std::int64_t qkv = rows_ * (q_width + std::max(kv_heads, c_) * head);
            traffic.add(GroupAxis::cp, CommKind::all_to_all, qkv, activation_, forwards + times);
            traffic.add(GroupAxis::cp, CommKind::all_to_all, rows_ * out_width, activation_, cores + times);
            return;
        }
    }
}

/// Dispatch and combination, each also backward, and the experts that every token passes.
void Forms::add_experts(Traffic& traffic, bool recomputed, std::int64_t times) const {
    const models::MixtureOfExperts& moe = model_.moe;
    const ExpertLoad& load = plan_.training.expert_load;
    const MemorySavings& memory = plan_.training.memory;
    const std::int64_t h = model_.hidden;
    const bool full = recomputed && memory.recompute == Recompute::full;
    const std::int64_t experts = times * (full || (recomputed && repeats(BlockPart::experts)) ? 2 : 1);
    const std::int64_t ep = plan_.parallelism.ep, etp = plan_.parallelism.etp;
    const std::int64_t chosen = rows_ / (sharded_ ? t_ : 1) * moe.top_k;
    double factor = load.expected();
    if (ep == 1) {  // nobody has more than was sent
        factor = load.capacity_factor <= 0 ? 1.0
                 : load.pads_to_capacity   ? load.capacity_factor
                                           : std::min(1.0, load.capacity_factor);
    }
    const auto received = static_cast<std::int64_t>(std::ceil(static_cast<double>(chosen) * factor - 1e-9));
    // There and back, forward as often as it runs, and backward once.
    if (!load.pads_to_capacity) {  // how many rows go where
        if (ep > 1) traffic.add(GroupAxis::ep, CommKind::all_to_all, moe.expert_count, DType::int64, experts);
        if (etp > 1) traffic.add(GroupAxis::etp, CommKind::all_gather, moe.expert_count * etp, DType::int64, experts);
    }
    if (ep > 1) {
        traffic.add(GroupAxis::ep, CommKind::all_to_all, received * h, activation_, 2 * (experts + times));
    }
    if (etp > 1) {
        traffic.add(GroupAxis::etp, CommKind::all_gather, received * etp * h, activation_, experts + times);
        traffic.add(GroupAxis::etp, CommKind::reduce_scatter, received * etp * h, activation_, experts + times);
    }
    if (moe.shared_ffn_hidden == 0) return;
    const bool again = full || (recomputed && repeats(BlockPart::shared_expert));
    // Their sum is needed in the backward pass for the gate's gradient, or, recomputed as a whole, for what lies behind
    // it.
    const bool needed =
        moe.shared_expert_gate || (full && masks_residuals()) || (full && !plan_.implementation.recompute_stops_early);
    const std::int64_t width = rows_ * operand_width(h);
    traffic.gather_for_product(width, operand_type(), times * (again ? 2 : 1));
    traffic.leave_in_pieces(rows_ * h, times * (again && needed ? 2 : 1));
    traffic.gather_for_product(width, operand_type(), times);  // of the branch's gradient
    traffic.gather_again(width, operand_type(), times);
    traffic.leave_inputs(rows_ * h, times, mlp_inputs());
}

bool Forms::masks_residuals() const {
    const models::KernelChoices& kernels = plan_.implementation.kernels;
    return plan_.training.dropout > 0 || (kernels.fused_residual && kernels.masks_without_dropout);
}

void Forms::add_block(Traffic& traffic, bool experts, bool recomputed, std::int64_t times) const {
    const MemorySavings& memory = plan_.training.memory;
    const std::int64_t h = model_.hidden;
    const std::int64_t width = rows_ * operand_width(h);
    const DType type = operand_type();
    const bool full = recomputed && memory.recompute == Recompute::full;
    const auto again = [&](BlockPart part) { return std::int64_t{full || (recomputed && repeats(part)) ? 1 : 0}; };
    add_attention(traffic, again(BlockPart::attention_projection), again(BlockPart::attention_core), times);
    // A recomputation that stops early leaves out the block's last reduction, unless a norm or a mask comes after it.
    const bool last = full && (!plan_.implementation.recompute_stops_early || model_.post_norm || masks_residuals());
    if (full && memory.shards_checkpoints && rows_ % t_ == 0) {
        traffic.add(GroupAxis::tp, CommKind::all_gather, rows_ * h, activation_, times);
    }
    if (model_.parallel_residual) {
        const BlockPart input = model_.shared_input_norm ? BlockPart::attention_projection : BlockPart::mlp_in;
        traffic.gather_for_product(width, type, times * (1 + again(input)));
        traffic.leave(rows_ * h, times * (last ? 2 : 1));  // both branches at once
        traffic.gather_for_product(width, type, times);
        traffic.gather_again(width, type, times);
        traffic.leave_inputs(rows_ * h, times, mlp_inputs() + (model_.shared_input_norm ? attention_inputs() : 0));
        return;
    }
    // Attention's sum is needed in full recomputation for the second half of the block.
    traffic.leave_in_pieces(rows_ * h, times * (full ? 2 : 1));
    traffic.gather_for_product(width, type, times);
    if (experts) {
        add_experts(traffic, recomputed, times);
        return;
    }
    traffic.gather_for_product(width, type, times * (1 + again(BlockPart::mlp_in)));
    traffic.leave_in_pieces(rows_ * h, times * (last ? 2 : 1));
    traffic.gather_for_product(width, type, times);
    traffic.gather_again(width, type, times);
    traffic.leave_inputs(rows_ * h, times, mlp_inputs());
}

/// Embedding: sums forward, the gradient gathered backward. Head: its input gathered, and again backward, where partial
/// sums leave; of each token a maximum and two sums in fp32, or else its logits in the activations' type.
void Forms::add_ends(Traffic& traffic, const Chunk& chunk, std::int64_t times) const {
    const std::int64_t all = rows_ * model_.hidden;
    if (chunk.has_embedding) {
        traffic.leave(all, times);
        traffic.gather(all, activation_, times);
    }
    if (!chunk.has_head) return;
    traffic.gather(all, activation_, times);
    traffic.gather_again(all, activation_, times, false);  // never in pieces: only a block's products are
    traffic.leave(all, times);
    if (t_ == 1) return;
    const models::KernelChoices& kernels = plan_.implementation.kernels;
    if (kernels.gathers_logits && !kernels.fused_cross_entropy) {
        traffic.add(GroupAxis::tp, CommKind::all_gather, rows_ * padded_vocab_, activation_, times);
    } else {
        traffic.add(GroupAxis::tp, CommKind::all_reduce, 3 * rows_, DType::fp32, times);
    }
}

/// Over the pipeline's ranks: of the output X is broadcast, dX reduced, and every rank's maximum and two sums of each
/// token gathered in fp32; of the input the lookup is reduced and its gradient broadcast.
void Forms::add_vocabulary(Traffic& traffic, const Chunk& chunk, std::int64_t times) const {
    if (chunk.part == ChunkPart::stage) return;
    traffic.add(GroupAxis::pipeline, CommKind::broadcast, hidden_elements(), activation_, times);
    traffic.add(GroupAxis::pipeline, CommKind::reduce, hidden_elements(), activation_, times);
    if (chunk.part == ChunkPart::vocabulary_input) return;
    traffic.add(GroupAxis::pipeline, CommKind::all_gather, 3 * vocabulary_cuts_ * rows_, DType::fp32, times);
}

void Forms::add_transfers(Traffic& traffic, const RankClass& ranks) const {
    const ScheduleShape shape = shape_of(plan_);
    const std::int64_t elements = hidden_elements();
    const bool cut = plan_.implementation.pipeline.scatters_transfers && t_ > 1 && !sharded_ && elements % t_ == 0;
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
            const std::int64_t moved = cut ? elements / t_ : elements;
            traffic.add(up ? GroupAxis::up_forward : GroupAxis::down_forward, forward, moved, activation_, times);
            traffic.add(up ? GroupAxis::up_backward : GroupAxis::down_backward, backward, moved, activation_, times);
            // One of the two is received here, and put together.
            if (cut) traffic.add(GroupAxis::tp, CommKind::all_gather, elements, activation_, times);
        };
        if (elsewhere(chunk.virtual_stage - 1)) transfer(chunk.virtual_stage - 1, CommKind::recv, CommKind::send);
        if (elsewhere(chunk.virtual_stage + 1)) transfer(chunk.virtual_stage, CommKind::send, CommKind::recv);
    }
}

/// Sums of gradients over tensor-parallel ranks and over the copies of a tied embedding, and their norm.
void Forms::add_step_end(Traffic& traffic, const RankClass& ranks) const {
    const Parallelism& p = plan_.parallelism;
    const Precision& precision = plan_.training.precision;
    // Where a unit's gradients go to shards after each backward they are summed before, each time.
    const auto sum = [&](ParameterRange range, GroupAxis axis) {
        for (std::size_t c = 0; c < ranks.chunks.size(); ++c) {
            RankClass alone;
            alone.pp_index = ranks.pp_index;
            alone.chunks = {ranks.chunks[c]};
            std::int64_t elements = elements_of(alone)[static_cast<std::size_t>(range)];
            for (const Parameter& parameter : ranks.parameters) {  // what lies between them goes along
                const bool here = parameter.range == range && parameter.chunk == static_cast<std::int32_t>(c);
                if (here) elements += parameter.padding;
            }
            traffic.add(axis, CommKind::all_reduce, elements, sharding_.made,
                        sharding_.reduces ? passes(ranks.chunks[c]) : 1);
        }
    };
    if (t_ > 1) sum(ParameterRange::tensor_sum, GroupAxis::tp);
    if (kv_copies_ > 1) sum(ParameterRange::kv_sum, GroupAxis::kv);
    if (sums_tied_copies(ranks)) {
        std::int64_t weight = padded_vocab_ / t_ * model_.hidden;
        if (sharding_.reduces) {  // padding goes along
            for (const Parameter& parameter : ranks.parameters) {
                if (parameter.name == kTiedWeight) weight += parameter.padding;
            }
            weight /= sharding_.dense_shards;
        }
        traffic.add(GroupAxis::embedding, CommKind::all_reduce, weight,
                    sharding_.reduces ? precision.gradient : sharding_.made);
    }
    if (plan_.training.optimizer.clip_norm <= 0 && !precision.loss_scaling) return;
    const bool everyone = sharding_.states || (plan_.model.has_experts() && (p.ep > 1 || p.etp != p.tp));
    const std::int64_t others = everyone ? p.world_size() : p.tp * p.pp;
    if (others > 1) {
        traffic.add(everyone ? GroupAxis::world : GroupAxis::model, CommKind::all_reduce, 2, DType::fp64);
    }
}

BytesByKind Forms::model_bytes(const RankClass& ranks) const {
    Traffic traffic{*this, {}};
    const MemorySavings& memory = plan_.training.memory;
    for (const Chunk& chunk : ranks.chunks) {
        const std::int64_t times = passes(chunk);
        // Blocks by what they are: experts or not, recomputed or not.
        std::array<std::int64_t, 4> blocks{};
        for (std::int64_t i = 0; i < chunk.block_count; ++i) {
            const bool experts = model_.is_expert_layer(chunk.first_block + i);
            const bool recomputed = memory.recompute_layers < 0 || i < memory.recompute_layers;
            ++blocks[(experts ? 2U : 0U) + (recomputed ? 1U : 0U)];
        }
        for (std::size_t kind = 0; kind < blocks.size(); ++kind) {
            if (blocks[kind] > 0) add_block(traffic, kind >= 2, kind % 2 == 1, blocks[kind] * times);
        }
        add_ends(traffic, chunk, times);
        add_vocabulary(traffic, chunk, times);
    }
    add_transfers(traffic, ranks);
    add_step_end(traffic, ranks);
    return traffic.bytes;
}

}  // namespace orrery::program::rules
