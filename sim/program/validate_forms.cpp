#include "sim/program/validate_forms.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/program/validate_rules.h"

namespace orrery::program::rules {
namespace {

std::int64_t aligned(std::int64_t bytes) {
    return (bytes + 63) / 64 * 64;
}

Sharding sharding_of(const Plan& plan) {
    const Parallelism& p = plan.parallelism;
    const Precision& precision = plan.training.precision;
    const models::DataParallelChoices& choices = plan.implementation.data_parallel;
    Sharding s;
    const std::int64_t mirrors = p.model_copies();
    s.gradient_dtype = precision.gradient;
    if (p.data_parallel == DataParallel::dp) return s;
    s.dense_ranks = p.dp * p.cp * mirrors;
    s.expert_ranks = plan.model.has_experts() ? p.tp * p.cp * p.dp / (p.ep * p.etp) * mirrors : 1;
    const bool any = s.dense_ranks > 1 || s.expert_ranks > 1;
    s.shards_states = any && p.data_parallel >= DataParallel::zero1;
    s.gathers_units = any && p.data_parallel == DataParallel::zero3;
    // If FSDP reduces only after the last backward, gradients stay whole. They also stay whole with a split backward
    // pass, which completes a unit's gradients at two places.
    s.reduces_units = any && p.data_parallel >= DataParallel::zero2 && p.reduces_every_micro_batch &&
                      !row_of(p.schedule).splits_backward();
    s.orders_by_unit = s.gathers_units || s.reduces_units;
    const bool sets = p.dp_shard > 0 && p.dp_shard < p.dp * p.cp;
    if (s.shards_states) {
        s.dense_shards = sets ? p.dp_shard : s.dense_ranks;
        s.expert_shards = s.expert_ranks;
    }
    s.reduce_scatters = s.shards_states && (choices.reduces_to_owner || p.data_parallel >= DataParallel::zero2);
    s.replicates = sets && s.reduce_scatters;
    if (s.reduces_units && s.gathers_units) s.gradient_dtype = precision.parameter;
    s.staged = precision.reduction != s.gradient_dtype || choices.fusion_buffer || s.gathers_units;
    return s;
}

}  // namespace

ClosedForms::ClosedForms(const Plan& plan)
    : plan_(plan),
      model_(plan.model),
      sharding_(sharding_of(plan)),
      tp_(plan.parallelism.tp),
      cp_(plan.parallelism.cp),
      sequence_parallel_(plan.parallelism.sequence_parallel && plan.parallelism.tp > 1),
      vocabulary_shards_(plan.parallelism.spreads_vocabulary() ? plan.parallelism.pp : plan.parallelism.tp),
      padded_vocab_(models::padded_vocabulary(plan.model, plan.implementation.vocab_multiple, vocabulary_shards_)),
      heads_(plan.model.heads / plan.parallelism.tp),
      kv_heads_(std::max<std::int64_t>(plan.model.kv_heads / plan.parallelism.tp, 1)),
      rows_(plan.training.sequence_length / plan.parallelism.cp * plan.training.micro_batch_size),
      activation_(plan.training.precision.activation) {
    if (!model_.has_latent_attention() && tp_ > model_.kv_heads) kv_copies_ = tp_ / model_.kv_heads;
}

bool ClosedForms::ties_on_rank() const {
    return model_.tied_embeddings && (plan_.parallelism.ends_meet() || plan_.parallelism.spreads_vocabulary());
}

bool ClosedForms::sums_tied_copies(const RankClass& ranks) const {
    if (!model_.tied_embeddings || ties_on_rank()) return false;
    return std::any_of(ranks.chunks.begin(), ranks.chunks.end(),
                       [](const Chunk& chunk) { return chunk.has_embedding || chunk.has_head; });
}

std::int64_t ClosedForms::norm_elements(std::int64_t width) const {
    return model_.norm == models::NormKind::layer_norm ? 2 * width : width;
}

/// With sequence parallelism each tensor-parallel rank computes these gradients from its own tokens only, so that they
/// are summed over tp.
ParameterRange ClosedForms::token_range() const {
    return sequence_parallel_ ? ParameterRange::tensor_sum : ParameterRange::dense;
}

std::int64_t ClosedForms::hidden_elements() const {
    return rows_ * model_.hidden / (sequence_parallel_ ? tp_ : 1);
}

std::int64_t ClosedForms::passes(const Chunk& chunk) const {
    const MicroBatches range = micro_batches_of(plan_, chunk);
    return range.end - range.begin;
}

std::int64_t ClosedForms::reductions(const RankClass& ranks, const Chunk& chunk) const {
    if (sharding_.reduces_units) return passes(chunk);
    const Parallelism& p = plan_.parallelism;
    const models::DataParallelChoices& choices = plan_.implementation.data_parallel;
    // Vocabulary parallelism does not end its passes in the order in which staging buffers are reused, and an
    // interlaced vocabulary has no backward pass.
    const bool reuses_staging = p.spreads_vocabulary() && sharding_.staged && !sharding_.reduce_scatters;
    const bool overlaps = choices.overlaps_backward && p.model_copies() == 1 && !reuses_staging &&
                          p.vocabulary_parallel != VocabularyParallel::interlaced &&
                          (!choices.overlaps_first_stage_only || ranks.pp_index == 0);
    return overlaps && !sharding_.orders_by_unit && p.reduces_every_micro_batch ? passes(chunk) : 1;
}

std::int64_t ClosedForms::attention_input_products() const {
    if (!plan_.implementation.kernels.merged_projections) return 3;
    return kv_copies_ > 1 ? 2 : 1;
}
std::int64_t ClosedForms::mlp_input_products() const {
    const models::KernelChoices& kernels = plan_.implementation.kernels;
    return model_.mlp == models::MlpKind::swiglu && !(kernels.merged_projections && kernels.merged_gate) ? 2 : 1;
}

/// The weights of one rank of which fp8 GEMMs read copies.
std::vector<Matrix> ClosedForms::block_matrices(bool experts) const {
    const std::int64_t h = model_.hidden;
    const bool merged = plan_.implementation.kernels.merged_projections;
    std::vector<Matrix> all;
    if (model_.has_latent_attention()) {
        const models::LatentAttention& l = model_.latent;
        if (l.q_lora_rank > 0) all.push_back({l.q_lora_rank, h});
        all.push_back({heads_ * (l.nope_head_dim + l.rope_head_dim), l.q_lora_rank > 0 ? l.q_lora_rank : h});
        all.push_back({l.kv_lora_rank + l.rope_head_dim, h});
        all.push_back({heads_ * (l.nope_head_dim + l.v_head_dim), l.kv_lora_rank});
        all.push_back({h, heads_ * l.v_head_dim});
    } else {
        const std::int64_t q = heads_ * model_.head_dim, kv = 2 * kv_heads_ * model_.head_dim;
        if (!merged) {
            all.push_back({q, h});
            all.push_back({kv / 2, h});
            all.push_back({kv / 2, h});
        } else if (kv_copies_ > 1) {
            all.push_back({q, h});
            all.push_back({kv, h});
        } else {
            all.push_back({q + kv, h});
        }
        all.push_back({h, q});
    }
    const std::int64_t gates = model_.mlp == models::MlpKind::swiglu ? 2 : 1, products = mlp_input_products();
    const auto mlp = [&](std::int64_t f) {
        for (std::int64_t i = 0; i < products; ++i) all.push_back({gates * f / products, h});
        all.push_back({h, f});
    };
    if (!experts) {
        mlp(model_.ffn_hidden / tp_);
        return all;
    }
    const models::MixtureOfExperts& moe = model_.moe;
    if (moe.shared_ffn_hidden > 0) mlp(moe.shared_ffn_hidden / tp_);
    const std::int64_t f = moe.expert_ffn_hidden / plan_.parallelism.etp;
    const std::int64_t count = moe.expert_count / plan_.parallelism.ep;
    all.push_back({gates * f, h, count});
    all.push_back({h, f, count});
    return all;
}

std::int64_t ClosedForms::weight_copy_bytes(bool experts) const {
    const Fp8Scaling fp8 = plan_.training.precision.fp8;
    if (fp8 == Fp8Scaling::none) return 0;
    std::int64_t bytes = 0;
    for (const Matrix& m : block_matrices(experts)) {
        bytes += aligned(m.count * m.n * models::operand_bytes(fp8, m.k));
        bytes += aligned(m.count * models::operand_bytes(fp8, m.n) * m.k);
    }
    return bytes;
}

Bases ClosedForms::block_elements(bool experts) const {
    const std::int64_t h = model_.hidden, d = model_.head_dim;
    Bases e{};
    std::int64_t& tokens = e[token_range()];
    tokens += (model_.shared_input_norm ? 1 : 2) * norm_elements(h);
    tokens += model_.attention_output_bias ? h : 0;
    if (model_.has_latent_attention()) {
        const models::LatentAttention& l = model_.latent;
        const std::int64_t qk = l.nope_head_dim + l.rope_head_dim;
        const std::int64_t q_in = l.q_lora_rank > 0 ? l.q_lora_rank : h;
        if (l.q_lora_rank > 0) tokens += l.q_lora_rank * h + norm_elements(l.q_lora_rank);
        tokens += (l.kv_lora_rank + l.rope_head_dim) * h + norm_elements(l.kv_lora_rank);
        e[ParameterRange::dense] +=
            heads_ * (qk * q_in + (l.nope_head_dim + l.v_head_dim) * l.kv_lora_rank + l.v_head_dim * h);
    } else {
        const std::int64_t in = h + (model_.qkv_bias ? 1 : 0);
        e[ParameterRange::dense] += heads_ * d * (in + h);
        e[kv_copies_ > 1 ? ParameterRange::kv_sum : ParameterRange::dense] += 2 * kv_heads_ * d * in;
        if (model_.qk_norm) e[tp_ > 1 ? ParameterRange::tensor_sum : ParameterRange::dense] += 2 * d;
    }
    const std::int64_t gates = model_.mlp == models::MlpKind::swiglu ? 2 : 1;
    if (!experts) {
        const std::int64_t f = model_.ffn_hidden / tp_;
        e[ParameterRange::dense] += gates * f * (h + (model_.mlp_bias ? 1 : 0)) + h * f;
        tokens += model_.mlp_bias ? h : 0;
        return e;
    }
    const models::MixtureOfExperts& moe = model_.moe;
    tokens += moe.expert_count * h + (moe.shared_expert_gate ? h : 0);
    e[ParameterRange::dense] += (gates + 1) * h * (moe.shared_ffn_hidden / tp_);
    e[ParameterRange::expert] +=
        moe.expert_count / plan_.parallelism.ep * (gates + 1) * h * (moe.expert_ffn_hidden / plan_.parallelism.etp);
    return e;
}

Bases ClosedForms::elements_of(const RankClass& ranks) const {
    const std::int64_t h = model_.hidden;
    Bases sum{};
    const auto add = [&](const Bases& of, std::int64_t times) {
        for (const ParameterRange r : kRanges) sum[r] += of[r] * times;
    };
    const Bases dense = block_elements(false);
    const Bases expert = model_.has_experts() ? block_elements(true) : Bases{};
    std::int64_t& tokens = sum[token_range()];
    for (const Chunk& chunk : ranks.chunks) {
        std::int64_t experts = 0;
        for (std::int64_t i = 0; i < chunk.block_count; ++i) {
            experts += model_.is_expert_layer(chunk.first_block + i) ? 1 : 0;
        }
        add(dense, chunk.block_count - experts);
        add(expert, experts);
        const bool spread = plan_.parallelism.spreads_vocabulary();
        const bool lookup = chunk.part == ChunkPart::vocabulary_input;
        if (chunk.has_embedding || lookup) sum[ParameterRange::dense] += padded_vocab_ / vocabulary_shards_ * h;
        if (chunk.has_embedding || (lookup && ranks.pp_index == 0)) {
            if (model_.position == models::PositionKind::learned) {
                tokens += (model_.max_positions + model_.position_offset) * h;
            }
            tokens += model_.token_types * h + (model_.embedding_norm ? norm_elements(h) : 0);
        }
        const bool last = spread && chunk.part == ChunkPart::stage && chunk.virtual_stage == plan_.parallelism.pp - 1;
        if (chunk.has_head || last) {
            tokens += model_.final_norm ? norm_elements(h) : 0;
            tokens += model_.head_transform ? h * h + h + norm_elements(h) : 0;
        }
        if (chunk.has_head || chunk.part == ChunkPart::vocabulary_output) {
            sum[ParameterRange::dense] += model_.head_bias ? padded_vocab_ / vocabulary_shards_ : 0;
            if (!ties_on_rank()) sum[ParameterRange::dense] += padded_vocab_ / vocabulary_shards_ * h;
        }
    }
    return sum;
}

std::int64_t ClosedForms::element_count(const RankClass& ranks) const {
    const Bases elements = elements_of(ranks);
    std::int64_t sum = 0;
    for (const std::int64_t count : elements) sum += count;
    return sum;
}

}  // namespace orrery::program::rules
