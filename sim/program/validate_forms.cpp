#include "sim/program/validate_forms.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/program/validate_rules.h"

namespace orrery::program::rules {
namespace {

constexpr std::size_t kDense = 0, kTensorSum = 1, kKvSum = 2, kExpert = 3;
static_assert(kDense == static_cast<std::size_t>(ParameterRange::dense));
static_assert(kTensorSum == static_cast<std::size_t>(ParameterRange::tensor_sum));
static_assert(kKvSum == static_cast<std::size_t>(ParameterRange::kv_sum));
static_assert(kExpert == static_cast<std::size_t>(ParameterRange::expert));

std::int64_t aligned(std::int64_t bytes) {
    return (bytes + 63) / 64 * 64;
}

Sharding sharding_of(const Plan& plan) {
    const Parallelism& p = plan.parallelism;
    const Precision& precision = plan.training.precision;
    const models::DataParallelChoices& choices = plan.implementation.data_parallel;
    Sharding s;
    const std::int64_t mirrors = p.model_copies();
    s.made = precision.gradient;
    if (p.data_parallel == DataParallel::dp) return s;
    s.dense_ranks = p.dp * p.cp * mirrors;
    s.expert_ranks = plan.model.has_experts() ? p.tp * p.cp * p.dp / (p.ep * p.etp) * mirrors : 1;
    const bool any = s.dense_ranks > 1 || s.expert_ranks > 1;
    s.states = any && p.data_parallel >= DataParallel::zero1;
    s.gathers = any && p.data_parallel == DataParallel::zero3;
    // FSDP may put reductions off to the last backward; its gradients then stay whole.
    // A split backward pass completes gradients in two places, so that they stay whole as well.
    s.reduces = any && p.data_parallel >= DataParallel::zero2 && p.reduces_every_micro_batch &&
                !row_of(p.schedule).splits_backward();
    s.units = s.gathers || s.reduces;
    const bool sets = p.dp_shard > 0 && p.dp_shard < p.dp * p.cp;
    if (s.states) {
        s.dense_shards = sets ? p.dp_shard : s.dense_ranks;
        s.expert_shards = s.expert_ranks;
    }
    s.scatters = s.states && (choices.reduces_to_owner || p.data_parallel >= DataParallel::zero2);
    s.replicates = sets && s.scatters;
    if (s.reduces && s.gathers) s.made = precision.parameter;
    s.staged = precision.reduction != s.made || choices.fusion_buffer || s.gathers;
    return s;
}

}  // namespace

Forms::Forms(const Plan& plan)
    : plan_(plan),
      model_(plan.model),
      sharding_(sharding_of(plan)),
      t_(plan.parallelism.tp),
      c_(plan.parallelism.cp),
      sharded_(plan.parallelism.sequence_parallel && plan.parallelism.tp > 1),
      vocabulary_cuts_(plan.parallelism.spreads_vocabulary() ? plan.parallelism.pp : plan.parallelism.tp),
      padded_vocab_(models::padded_vocabulary(plan.model, plan.implementation.vocab_multiple, vocabulary_cuts_)),
      heads_(plan.model.heads / plan.parallelism.tp),
      kv_heads_(std::max<std::int64_t>(plan.model.kv_heads / plan.parallelism.tp, 1)),
      rows_(plan.training.sequence_length / plan.parallelism.cp * plan.training.micro_batch_size),
      activation_(plan.training.precision.activation) {
    if (!model_.has_latent_attention() && t_ > model_.kv_heads) kv_copies_ = t_ / model_.kv_heads;
}

bool Forms::ties_on_rank() const {
    return model_.tied_embeddings && (plan_.parallelism.ends_meet() || plan_.parallelism.spreads_vocabulary());
}

bool Forms::sums_tied_copies(const RankClass& ranks) const {
    if (!model_.tied_embeddings || ties_on_rank()) return false;
    return std::any_of(ranks.chunks.begin(), ranks.chunks.end(),
                       [](const Chunk& chunk) { return chunk.has_embedding || chunk.has_head; });
}

std::int64_t Forms::norm(std::int64_t width) const {
    return model_.norm == models::NormKind::layer_norm ? 2 * width : width;
}

/// Of parameters that every tensor-parallel rank holds whole: under sequence parallelism each sees its tokens only.
std::size_t Forms::token_range() const {
    return sharded_ ? kTensorSum : kDense;
}

std::int64_t Forms::hidden_elements() const {
    return rows_ * model_.hidden / (sharded_ ? t_ : 1);
}

std::int64_t Forms::passes(const Chunk& chunk) const {
    const MicroBatches range = micro_batches_of(plan_, chunk);
    return range.end - range.begin;
}

std::int64_t Forms::reductions(const RankClass& ranks, const Chunk& chunk) const {
    if (sharding_.reduces) return passes(chunk);
    const Parallelism& p = plan_.parallelism;
    const models::DataParallelChoices& choices = plan_.implementation.data_parallel;
    // Parts of a vocabulary end in another order than staging buffers take turns; interlaced they have no backward.
    const bool in_turns = p.spreads_vocabulary() && sharding_.staged && !sharding_.scatters;
    const bool overlaps = choices.overlaps_backward && p.model_copies() == 1 && !in_turns &&
                          p.vocabulary_parallel != VocabularyParallel::interlaced &&
                          (!choices.overlaps_first_stage_only || ranks.pp_index == 0);
    return overlaps && !sharding_.units && p.reduces_every_micro_batch ? passes(chunk) : 1;
}

/// Products that read the norm's output: of q, k and v, and of gate and up.
std::int64_t Forms::attention_inputs() const {
    if (!plan_.implementation.kernels.merged_projections) return 3;
    return kv_copies_ > 1 ? 2 : 1;
}
std::int64_t Forms::mlp_inputs() const {
    const models::KernelChoices& kernels = plan_.implementation.kernels;
    return model_.mlp == models::MlpKind::swiglu && !(kernels.merged_projections && kernels.merged_gate) ? 2 : 1;
}

/// Weights that fp8 products would read, on this rank.
std::vector<Matrix> Forms::block_matrices(bool experts) const {
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
    const std::int64_t gates = model_.mlp == models::MlpKind::swiglu ? 2 : 1, products = mlp_inputs();
    const auto mlp = [&](std::int64_t f) {
        for (std::int64_t i = 0; i < products; ++i) all.push_back({gates * f / products, h});
        all.push_back({h, f});
    };
    if (!experts) {
        mlp(model_.ffn_hidden / t_);
        return all;
    }
    const models::MixtureOfExperts& moe = model_.moe;
    if (moe.shared_ffn_hidden > 0) mlp(moe.shared_ffn_hidden / t_);
    const std::int64_t f = moe.expert_ffn_hidden / plan_.parallelism.etp;
    const std::int64_t count = moe.expert_count / plan_.parallelism.ep;
    all.push_back({gates * f, h, count});
    all.push_back({h, f, count});
    return all;
}

std::int64_t Forms::weight_copy_bytes(bool experts) const {
    const Fp8Scaling fp8 = plan_.training.precision.fp8;
    if (fp8 == Fp8Scaling::none) return 0;
    std::int64_t bytes = 0;
    for (const Matrix& m : block_matrices(experts)) {
        bytes += aligned(m.count * m.n * models::operand_bytes(fp8, m.k));
        bytes += aligned(m.count * models::operand_bytes(fp8, m.n) * m.k);
    }
    return bytes;
}

Bases Forms::block_elements(bool experts) const {
    const std::int64_t h = model_.hidden, d = model_.head_dim;
    Bases e{};
    std::int64_t& tokens = e[token_range()];
    tokens += (model_.shared_input_norm ? 1 : 2) * norm(h);
    tokens += model_.attention_output_bias ? h : 0;
    if (model_.has_latent_attention()) {
        const models::LatentAttention& l = model_.latent;
        const std::int64_t qk = l.nope_head_dim + l.rope_head_dim;
        const std::int64_t q_in = l.q_lora_rank > 0 ? l.q_lora_rank : h;
        if (l.q_lora_rank > 0) tokens += l.q_lora_rank * h + norm(l.q_lora_rank);
        tokens += (l.kv_lora_rank + l.rope_head_dim) * h + norm(l.kv_lora_rank);
        e[kDense] += heads_ * (qk * q_in + (l.nope_head_dim + l.v_head_dim) * l.kv_lora_rank + l.v_head_dim * h);
    } else {
        const std::int64_t in = h + (model_.qkv_bias ? 1 : 0);
        e[kDense] += heads_ * d * (in + h);
        e[kv_copies_ > 1 ? kKvSum : kDense] += 2 * kv_heads_ * d * in;
        if (model_.qk_norm) e[t_ > 1 ? kTensorSum : kDense] += 2 * d;
    }
    const std::int64_t gates = model_.mlp == models::MlpKind::swiglu ? 2 : 1;
    if (!experts) {
        const std::int64_t f = model_.ffn_hidden / t_;
        e[kDense] += gates * f * (h + (model_.mlp_bias ? 1 : 0)) + h * f;
        tokens += model_.mlp_bias ? h : 0;
        return e;
    }
    const models::MixtureOfExperts& moe = model_.moe;
    tokens += moe.expert_count * h + (moe.shared_expert_gate ? h : 0);
    e[kDense] += (gates + 1) * h * (moe.shared_ffn_hidden / t_);
    e[kExpert] +=
        moe.expert_count / plan_.parallelism.ep * (gates + 1) * h * (moe.expert_ffn_hidden / plan_.parallelism.etp);
    return e;
}

Bases Forms::elements_of(const RankClass& ranks) const {
    const std::int64_t h = model_.hidden;
    Bases sum{};
    const auto add = [&](const Bases& of, std::int64_t times) {
        for (std::size_t r = 0; r < sum.size(); ++r) sum[r] += of[r] * times;
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
        if (chunk.has_embedding || lookup) sum[kDense] += padded_vocab_ / vocabulary_cuts_ * h;
        if (chunk.has_embedding || (lookup && ranks.pp_index == 0)) {
            if (model_.position == models::PositionKind::learned) {
                tokens += (model_.max_positions + model_.position_offset) * h;
            }
            tokens += model_.token_types * h + (model_.embedding_norm ? norm(h) : 0);
        }
        const bool last = spread && chunk.part == ChunkPart::stage && chunk.virtual_stage == plan_.parallelism.pp - 1;
        if (chunk.has_head || last) {
            tokens += model_.final_norm ? norm(h) : 0;
            tokens += model_.head_transform ? h * h + h + norm(h) : 0;
        }
        if (chunk.has_head || chunk.part == ChunkPart::vocabulary_output) {
            sum[kDense] += model_.head_bias ? padded_vocab_ / vocabulary_cuts_ : 0;
            if (!ties_on_rank()) sum[kDense] += padded_vocab_ / vocabulary_cuts_ * h;
        }
    }
    return sum;
}

std::int64_t Forms::element_count(const RankClass& ranks) const {
    const Bases elements = elements_of(ranks);
    std::int64_t sum = 0;
    for (const std::int64_t count : elements) sum += count;
    return sum;
}

}  // namespace orrery::program::rules
