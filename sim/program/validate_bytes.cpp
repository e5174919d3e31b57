// Rule "bytes": the bytes that each rank communicates in a step equal the plan's closed forms, by axis and kind. What
// is gathered again in the backward pass follows Megatron-LM.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "sim/program/validate_forms.h"

namespace orrery::program::rules {
namespace {

using models::BlockPart;

/// One kind of message on an axis, and how tokens travel in it (Communication::tokens_once).
struct MessageKind {
    GroupAxis axis{};
    CommKind kind{};
    std::optional<models::TokenRouting> tokens_once{};
    auto operator<=>(const MessageKind&) const = default;
};
/// Message bytes (see CommKind).
using BytesByKind = std::map<MessageKind, std::int64_t>;

/// Adds up the messages of a rank in one step. Widths are in elements of a row: one token in a tensor-parallel region.
class Traffic : ClosedForms {
  public:
    explicit Traffic(const ClosedForms& forms) : ClosedForms(forms) {}

    [[nodiscard]] BytesByKind of(const RankClass& ranks) {
        if (is_replicated(plan_)) {
            add_replicas(ranks);
            return std::move(bytes_);
        }
        for (const Chunk& chunk : ranks.chunks) {
            const std::int64_t times = passes(chunk);
            const std::int64_t recomputed = memory_.recompute_layers < 0
                                                ? chunk.block_count
                                                : std::min(memory_.recompute_layers, chunk.block_count);
            add_blocks(chunk.first_block, recomputed, true, times);
            add_blocks(chunk.first_block + recomputed, chunk.block_count - recomputed, false, times);
            add_embedding_and_head(chunk, times);
            add_vocabulary(chunk, times);
        }
        add_transfers(ranks);
        add_step_end(ranks);
        for (const Bucket& bucket : ranks.buckets) add_bucket(ranks, bucket);
        return std::move(bytes_);
    }

  private:
    void add(GroupAxis axis, CommKind kind, std::int64_t elements, DType dtype, std::int64_t times = 1) {
        if (elements > 0 && times > 0) bytes_[{.axis = axis, .kind = kind}] += times * elements * size_of(dtype);
    }
    /// All-gather into a tensor-parallel region. Without sequence parallelism every rank has all tokens already.
    void gather(std::int64_t width, DType dtype, std::int64_t times) {
        if (sequence_parallel_) add(GroupAxis::tp, CommKind::all_gather, rows_ * width, dtype, times);
    }
    /// Pieces of a gather or a reduction that go round a ring while the GEMM runs.
    void pass_round(std::int64_t width, DType dtype, std::int64_t times) {
        add(GroupAxis::tp, CommKind::exchange, rows_ * width / tp_, dtype, times * (tp_ - 1));
    }
    /// The gather of a GEMM's operand, scales included, in the type in which the GEMMs of a block read it.
    void gather_operand(std::int64_t width, std::int64_t times, bool may_go_round = false) {
        const std::int64_t sent = models::operand_bytes(precision_.fp8, width);
        if (may_go_round && goes_round_) return pass_round(sent, operand_type_, times);
        gather(sent, operand_type_, times);
    }
    void gather_for_product(std::int64_t width, std::int64_t times) { gather_operand(width, times, true); }
    /// Reduces the partial sums at the end of a tensor-parallel region.
    void reduce_partial_sums(std::int64_t width, std::int64_t times) {
        if (tp_ == 1) return;
        add(GroupAxis::tp, sequence_parallel_ ? CommKind::reduce_scatter : CommKind::all_reduce, rows_ * width,
            activation_, times);
    }
    /// The region of a block that begins with `products` GEMMs of the same input. `forwards`: how often it is computed
    /// forward.
    void begin_region(std::int64_t width, std::int64_t forwards, std::int64_t times, std::int64_t products) {
        gather_for_product(width, forwards);
        // The backward pass gathers it again, unless it was kept, which it is not if it was gathered in pieces.
        if (!choices_.keeps_gathered_inputs || choices_.pipelined_gather) gather_operand(width, times);
        const bool separately = choices_.reduces_inputs_apart && !sequence_parallel_;
        reduce_partial_sums(width, separately ? times * products : times);  // the gradient of the input
    }
    /// The GEMM that ends the region: the reduction of its output, and the gather of that output's gradient.
    void end_region(std::int64_t forwards, std::int64_t times) {
        if (goes_round_) {
            pass_round(h_, activation_, forwards);
        } else {
            reduce_partial_sums(h_, forwards);
        }
        gather_for_product(h_, times);
    }

    /// How often a part of `times` blocks is computed forward. `recomputed`: the backward passes of these blocks may
    /// recompute parts.
    [[nodiscard]] std::int64_t forwards_of(BlockPart part, bool recomputed, std::int64_t times) const {
        const auto& parts = memory_.recompute_parts;
        const bool selected = parts.empty()
                                  ? part == BlockPart::attention_core
                                  : std::find(parts.begin(), parts.end(), models::name_of(part)) != parts.end();
        const bool again = recomputes_all_ || (memory_.recompute == Recompute::selective && selected);
        return recomputed && again ? 2 * times : times;
    }

    void add_blocks(std::int64_t first, std::int64_t count, bool recomputed, std::int64_t times) {
        const std::int64_t experts = expert_blocks(first, count);
        add_block(false, recomputed, (count - experts) * times);
        if (experts > 0) add_block(true, recomputed, experts * times);
    }
    void add_block(bool experts, bool recomputed, std::int64_t times) {
        const bool full = recomputed && recomputes_all_;
        const auto forwards = [&](BlockPart part) { return forwards_of(part, recomputed, times); };
        add_attention(forwards(BlockPart::attention_projection), forwards(BlockPart::attention_core), times);
        // Full recomputation that stops early omits the block's last reduction, unless a norm or a mask comes after it.
        const bool last = full && (reaches_end_ || model_.post_norm);
        if (full && memory_.shards_checkpoints && rows_ % tp_ == 0) {
            add(GroupAxis::tp, CommKind::all_gather, rows_ * h_, activation_, times);
        }
        if (model_.parallel_residual) {
            const bool shared = model_.shared_input_norm;
            begin_region(h_, forwards(shared ? BlockPart::attention_projection : BlockPart::mlp_in), times,
                         mlp_products_ + (shared ? attention_products_ : 0));
            reduce_partial_sums(h_, last ? 2 * times : times);  // both branches at once
            gather_for_product(h_, times);
            return;
        }
        // Full recomputation repeats the reduction of attention's output, which the MLP needs.
        end_region(full ? 2 * times : times, times);
        if (experts) return add_experts(recomputed, times);
        begin_region(h_, forwards(BlockPart::mlp_in), times, mlp_products_);
        end_region(last ? 2 * times : times, times);
    }

    /// From the norm's output to the partial sums of the output projection. `forwards`, `cores`: how often the
    /// projections and the core are computed forward.
    void add_attention(std::int64_t forwards, std::int64_t cores, std::int64_t times) {
        if (is_latent_) {
            begin_region(q_input_, forwards, times, 1);
            gather_operand(latent_, choices_.keeps_gathered_inputs ? forwards : forwards + times);  // never in pieces
            reduce_partial_sums(latent_, times);
        } else if (!(model_.parallel_residual && model_.shared_input_norm)) {  // else counted with the MLP
            begin_region(h_, forwards, times, attention_products_);
        }
        if (cp_ == 1) return;
        const std::int64_t head = key_width_ + value_width_, kv = rows_ * kv_heads_ * head;
        const auto over_cp = [&](CommKind kind, std::int64_t elements, std::int64_t calls) {
            add(GroupAxis::cp, kind, elements, activation_, calls);
        };
        if (p_.context_parallel == ContextParallel::ring) {
            // cp - 1 exchanges of keys and values in each pass; in the backward pass, cp more for their gradients.
            over_cp(CommKind::exchange, kv, cores * (cp_ - 1) + times * (2 * cp_ - 1));
        } else if (p_.context_parallel == ContextParallel::all_gather) {
            over_cp(CommKind::all_gather, cp_ * kv, cores + times);
            over_cp(CommKind::reduce_scatter, cp_ * kv, times);
        } else {
            over_cp(CommKind::all_to_all, rows_ * (heads_ * key_width_ + std::max(kv_heads_, cp_) * head),
                    forwards + times);
            over_cp(CommKind::all_to_all, rows_ * heads_ * value_width_, cores + times);
        }
    }

    /// Dispatch and combine of tokens, forward and backward, and the shared experts.
    void add_experts(bool recomputed, std::int64_t times) {
        const models::MixtureOfExperts& moe = model_.moe;
        const ExpertLoad& load = plan_.training.expert_load;
        const std::int64_t experts = forwards_of(BlockPart::experts, recomputed, times);
        const std::int64_t ep = p_.ep, etp = p_.etp;
        const std::int64_t chosen = rows_ / (sequence_parallel_ ? tp_ : 1) * moe.top_k;
        double factor = load.expected();
        if (ep == 1) {  // one rank holds all experts, so that the load cannot be uneven over ranks
            factor = load.capacity_factor <= 0 ? 1.0
                     : load.pads_to_capacity   ? load.capacity_factor
                                               : std::min(1.0, load.capacity_factor);
        }
        const auto received = static_cast<std::int64_t>(std::ceil(static_cast<double>(chosen) * factor - 1e-9));
        if (!load.pads_to_capacity) {  // the row counts of each expert
            if (ep > 1) add(GroupAxis::ep, CommKind::all_to_all, moe.expert_count, DType::int64, experts);
            if (etp > 1) add(GroupAxis::etp, CommKind::all_gather, moe.expert_count * etp, DType::int64, experts);
        }
        if (ep > 1) {  // dispatch and combine
            MessageKind tokens{.axis = GroupAxis::ep, .kind = CommKind::all_to_all};
            if (plan_.implementation.experts.sends_tokens_once) {
                const bool in_groups = moe.expert_groups > 0;
                tokens.tokens_once = {.experts = moe.expert_count,
                                      .top_k = moe.top_k,
                                      .groups = in_groups ? moe.expert_groups : 1,
                                      .top_k_groups = in_groups ? moe.top_k_groups : 1};
            }
            const std::int64_t passes = 2 * (experts + times);
            if (passes > 0) bytes_[tokens] += passes * received * h_ * size_of(activation_);
        }
        if (etp > 1) {
            add(GroupAxis::etp, CommKind::all_gather, received * etp * h_, activation_, experts + times);
            add(GroupAxis::etp, CommKind::reduce_scatter, received * etp * h_, activation_, experts + times);
        }
        if (moe.shared_ffn_hidden == 0) return;
        // Recomputation repeats the reduction of the shared expert's output only if the output is needed: for the
        // gate's gradient or, in full recomputation, for the operators after it.
        const bool needed = moe.shared_expert_gate || (recomputes_all_ && reaches_end_);
        const std::int64_t forwards = forwards_of(BlockPart::shared_expert, recomputed, times);
        begin_region(h_, forwards, times, mlp_products_);
        end_region(needed ? forwards : times, times);
    }

    /// Embedding: the lookups are reduced in the forward pass and their gradient is gathered in the backward pass.
    /// Head: its input is gathered, the gradient of the input is reduced, and the loss needs a maximum and two sums of
    /// each token in fp32, from each rank with an online softmax, or, with gathers_logits, all logits in the
    /// activations' type.
    void add_embedding_and_head(const Chunk& chunk, std::int64_t times) {
        if (chunk.has_embedding) {
            reduce_partial_sums(h_, times);
            gather(h_, activation_, times);
        }
        if (!chunk.has_head) return;
        gather(h_, activation_, choices_.keeps_gathered_inputs ? times : 2 * times);  // never in pieces
        reduce_partial_sums(h_, times);
        if (tp_ == 1) return;
        if (kernels_.gathers_logits && !kernels_.fused_cross_entropy) {
            add(GroupAxis::tp, CommKind::all_gather, rows_ * padded_vocab_, activation_, times);
        } else if (kernels_.online_softmax && !plan_.cluster.device.host_runs_compute) {
            add(GroupAxis::tp, CommKind::all_gather, 3 * tp_ * rows_, DType::fp32, times);
        } else {
            add(GroupAxis::tp, CommKind::all_reduce, 3 * rows_, DType::fp32, times);
        }
    }

    /// Over the pipeline's ranks. Output: X is broadcast, dX is reduced, and every rank's maximum and two sums of each
    /// token are gathered in fp32. Input: the lookup is reduced and its gradient is broadcast.
    void add_vocabulary(const Chunk& chunk, std::int64_t times) {
        if (chunk.part == ChunkPart::stage) return;
        add(GroupAxis::pipeline, CommKind::broadcast, hidden_elements(), activation_, times);
        add(GroupAxis::pipeline, CommKind::reduce, hidden_elements(), activation_, times);
        if (chunk.part == ChunkPart::vocabulary_input) return;
        add(GroupAxis::pipeline, CommKind::all_gather, 3 * vocabulary_shards_ * rows_, DType::fp32, times);
    }

    void add_transfers(const RankClass& ranks) {
        const ScheduleShape shape = schedule_shape(plan_);
        const std::int64_t elements = hidden_elements();
        const bool cut =
            plan_.implementation.pipeline.scatters_transfers && tp_ > 1 && !sequence_parallel_ && elements % tp_ == 0;
        const std::int64_t moved = cut ? elements / tp_ : elements;
        for (const Chunk& chunk : ranks.chunks) {
            for (const std::int64_t shift : {-1, 1}) {
                const Neighbour other = neighbour_of(shape, ranks, chunk, shift);
                if (!other.is_elsewhere) continue;
                const bool receives = shift < 0;
                const bool up = receives ? chunk_place(shape, other.holder.rank, other.holder.chunk).up : chunk.up;
                add(up ? GroupAxis::up_forward : GroupAxis::down_forward, receives ? CommKind::recv : CommKind::send,
                    moved, activation_, passes(chunk));
                add(up ? GroupAxis::up_backward : GroupAxis::down_backward, receives ? CommKind::send : CommKind::recv,
                    moved, activation_, passes(chunk));
                // One of the two transfers is received here, and its parts are gathered.
                if (cut) add(GroupAxis::tp, CommKind::all_gather, elements, activation_, passes(chunk));
            }
        }
    }

    /// Gradient sums over tensor-parallel ranks and over the copies of a tied embedding, and the gradient norm.
    void add_step_end(const RankClass& ranks) {
        if (tp_ > 1) add_gradient_sum(ranks, ParameterRange::tensor_sum, GroupAxis::tp);
        if (kv_copies_ > 1) add_gradient_sum(ranks, ParameterRange::kv_sum, GroupAxis::kv);
        const bool holds_copy = std::any_of(ranks.chunks.begin(), ranks.chunks.end(),
                                            [](const Chunk& chunk) { return chunk.has_embedding || chunk.has_head; });
        if (model_.tied_embeddings && !ties_on_rank() && holds_copy) {
            std::int64_t weight = padded_vocab_ / tp_ * h_;
            if (sharding_.reduces_units) {  // padding is summed too
                for (const Parameter& parameter : ranks.parameters) {
                    if (parameter.name == kTiedWeight) weight += parameter.padding;
                }
                weight /= sharding_.dense_shards;
            }
            add(GroupAxis::embedding, CommKind::all_reduce, weight, sharding_.reduced_dtype);
        }
        if (!plan_.training.checks_gradients()) return;
        const bool everyone = sharding_.shards_states || (model_.has_experts() && (p_.ep > 1 || p_.etp != p_.tp));
        if ((everyone ? p_.world_size() : p_.tp * p_.pp) == 1) return;
        add(everyone ? GroupAxis::world : GroupAxis::model, CommKind::all_reduce, 2, DType::fp64);
    }
    /// If units are reduced into shards after each backward, this sum precedes each of those reductions.
    void add_gradient_sum(const RankClass& ranks, ParameterRange range, GroupAxis axis) {
        for (const ChunkIndex c : ranks.chunks.indices()) {
            std::int64_t elements = elements_of(ranks, ranks.chunks[c])[range];
            for (const Parameter& parameter : ranks.parameters) {  // padding is summed too
                if (parameter.range == range && parameter.chunk == c) elements += parameter.padding;
            }
            add(axis, CommKind::all_reduce, elements, sharding_.gradient_dtype,
                sharding_.reduces_units ? passes(ranks.chunks[c]) : 1);
        }
    }

    /// The reductions of a bucket's gradients and the gathers of its parameters over data-parallel ranks. Its size,
    /// padding included, is taken from the Program: the rule "parameters" checks it.
    void add_bucket(const RankClass& ranks, const Bucket& bucket) {
        if (!sharding_.reduces(bucket.range)) return;
        const BucketContents contents = contents_of(plan_, ranks, bucket);
        const Chunk& chunk = ranks.chunks[contents.chunk];
        const bool expert = bucket.range == ParameterRange::expert;
        const bool sets = !expert && sharding_.replicates;
        const GroupAxis axis = expert ? GroupAxis::edp : sets ? GroupAxis::dp_shard : GroupAxis::dp;
        const std::int64_t reduced = reductions(ranks, chunk);
        add(axis, sharding_.reduce_scatters ? CommKind::reduce_scatter : CommKind::all_reduce, bucket.elements,
            precision_.reduction, reduced);
        if (sets) {  // in the type of the shards, to which micro-batches add first
            add(GroupAxis::dp_replicate, CommKind::all_reduce, bucket.shard_elements, sharding_.reduced_dtype,
                sharding_.reduces_units ? 1 : reduced);
        }
        if (!sharding_.shards_states) return;
        // Parameters are gathered among the ranks of one set of shards, whatever the axis of the gradient reduction.
        const bool in_sets = !expert && sharding_.dense_shards < sharding_.dense_ranks;
        const bool root = sharding_.gathers_units && contents.is_root;
        const std::int64_t turns = p_.reshard_after_forward && !root ? 2 : 1;
        add(in_sets ? GroupAxis::dp_shard : axis, CommKind::all_gather, bucket.elements,
            precision_.fp8_parameters && !root ? DType::fp8 : precision_.parameter,
            sharding_.gathers_units ? turns * passes(chunk) : 1);  // otherwise after the update
    }

    /// torch.nn.DataParallel: for each batch, inputs and parameters to the replicas, outputs back to the master, their
    /// gradients to the replicas, and the parameters' gradients to the master.
    void add_replicas(const RankClass& ranks) {
        const std::int64_t n = p_.dp, m = plan_.micro_batches();
        if (n == 1) return;
        const std::int64_t tokens = n * plan_.training.sequence_length * plan_.training.micro_batch_size;
        const std::int64_t logits = tokens * padded_vocab_;
        const Bases by_range = elements_of(ranks);
        const std::int64_t elements = std::accumulate(by_range.begin(), by_range.end(), std::int64_t{0});
        const DType type = kernels_.fused_cross_entropy ? DType::fp32 : activation_;
        add(GroupAxis::dp, CommKind::scatter, tokens, DType::int32, m);
        add(GroupAxis::dp, CommKind::scatter, logits, type, m);
        add(GroupAxis::dp, CommKind::gather, logits, type, m);
        add(GroupAxis::dp, CommKind::broadcast, elements, precision_.parameter, m);
        add(GroupAxis::dp, CommKind::reduce, elements, precision_.gradient, m);
    }

    const Precision& precision_ = plan_.training.precision;
    const MemorySavings& memory_ = plan_.training.memory;
    const models::TensorParallelChoices& choices_ = plan_.implementation.tensor_parallel;
    // The type in which the GEMMs of a block read their operands.
    const DType operand_type_ = precision_.fp8 == Fp8Scaling::none ? activation_ : models::operand_type(precision_.fp8);
    const bool goes_round_ = sequence_parallel_ && choices_.pipelined_gather;
    const bool masks_residuals_ =  // with dropout
        plan_.training.dropout > 0 || (kernels_.fused_residual && kernels_.masks_without_dropout);
    const bool recomputes_all_ = memory_.recompute == Recompute::full;
    // Full recomputation continues to the block's last addition.
    const bool reaches_end_ = masks_residuals_ || !plan_.implementation.recompute_stops_early;
    BytesByKind bytes_;
};

/// The message bytes that a rank of the class issues in one step.
BytesByKind issued_bytes(const Program& program, ClassIndex c) {
    BytesByKind bytes;
    const auto calls = calls_of_bodies(program, c);
    for (const BodyId b : calls.indices()) {
        if (calls[b] == 0) continue;
        for (const Instruction& instruction : program.bodies[b].instructions) {
            const Communication& comm = instruction.communication;
            if (instruction.is_communication) {
                bytes[{comm.axis, comm.kind, comm.tokens_once}] += calls[b] * comm.bytes();
            }
        }
    }
    return bytes;
}

}  // namespace

void check_bytes(const Program& program) {
    const ClosedForms forms(*program.plan);
    for (const ClassIndex c : program.classes.indices()) {
        BytesByKind expected = Traffic(forms).of(program.classes[c]);
        BytesByKind issued = issued_bytes(program, c);
        for (const auto& [key, bytes] : expected) issued[key] += 0;
        for (const auto& [key, bytes] : issued) {
            if (bytes == expected[key]) continue;
            fail(program, "bytes", {.rank_class = c},
                 "{} on the axis {}{} moves {} bytes a step; the closed form gives {}", key.kind, key.axis,
                 key.tokens_once ? " with tokens that travel once" : "", bytes, expected[key]);
        }
    }
}

}  // namespace orrery::program::rules
