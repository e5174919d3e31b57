#include "sim/program/validate_forms.h"

namespace orrery::program::rules {

Sharding sharding_of(const Plan& plan) {
    const Parallelism& p = plan.parallelism;
    const Precision& precision = plan.training.precision;
    const models::DataParallelChoices& choices = plan.implementation.data_parallel;
    Sharding s;
    s.gradient_dtype = s.reduced_dtype = precision.gradient;
    if (p.data_parallel == DataParallel::dp) return s;
    s.dense_ranks = p.dp * p.cp * p.model_copies();
    s.expert_ranks = plan.model.has_experts() ? p.tp * p.cp * p.dp / (p.ep * p.etp) * p.model_copies() : 1;
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
    s.reduced_dtype = s.reduces_units ? precision.gradient : s.gradient_dtype;
    s.staged = precision.reduction != s.gradient_dtype || choices.fusion_buffer || s.gathers_units;
    return s;
}

BucketContents contents_of(const Plan& plan, const RankClass& ranks, const Bucket& bucket) {
    const bool has_roots = plan.implementation.data_parallel.keeps_root_gathered || plan.model.tied_embeddings;
    BucketContents all;
    bool first = true;
    for (const Parameter& parameter : ranks.parameters) {
        const std::int64_t place = parameter.offset - bucket.offset;
        if (place < 0 || place >= bucket.elements) continue;
        const std::int32_t layer = parameter.layer;
        all.begins_one = all.begins_one || place == 0;
        all.has_one_chunk = all.has_one_chunk && (first || parameter.chunk == all.chunk);
        if (first || place == 0) all.chunk = parameter.chunk;
        all.first_layer = first ? layer : std::min(all.first_layer, layer);
        all.last_layer = first ? layer : std::max(all.last_layer, layer);
        all.is_root = all.is_root || (has_roots && (layer < 0 || layer == plan.model.layers));
        first = false;
    }
    return all;
}

std::int64_t ClosedForms::reductions(const RankClass& ranks, const Chunk& chunk) const {
    if (sharding_.reduces_units) return passes(chunk);
    const models::DataParallelChoices& choices = plan_.implementation.data_parallel;
    // Vocabulary parallelism does not end its passes in the order in which staging buffers are reused, and an
    // interlaced vocabulary has no backward pass.
    const bool reuses_staging = p_.spreads_vocabulary() && sharding_.staged && !sharding_.reduce_scatters;
    const bool overlaps = choices.overlaps_backward && p_.model_copies() == 1 && !reuses_staging &&
                          p_.vocabulary_parallel != VocabularyParallel::interlaced &&
                          (!choices.overlaps_first_stage_only || ranks.pp_index == 0);
    return overlaps && !sharding_.orders_by_unit && p_.reduces_every_micro_batch ? passes(chunk) : 1;
}

/// All weight matrices of a block but the router's, which the GEMMs of fp8 do not read.
std::vector<Matrix> ClosedForms::block_matrices(bool experts) const {
    const bool merged = kernels_.merged_projections;
    std::vector<Matrix> all;
    if (is_latent_) {
        const models::LatentAttention& l = model_.latent;
        if (l.q_lora_rank > 0) all.push_back({q_input_, h_, token_range_});
        all.push_back({heads_ * key_width_, q_input_});
        all.push_back({latent_, h_, token_range_});
        all.push_back({heads_ * (l.nope_head_dim + value_width_), l.kv_lora_rank});
    } else {
        const std::int64_t q = heads_ * key_width_, kv = 2 * kv_heads_ * key_width_;
        const bool copied = kv_copies_ > 1, whole = merged && !copied;
        all.push_back({whole ? q + kv : q, h_, ParameterRange::dense, model_.qkv_bias});
        const std::int64_t parts = whole ? 0 : merged ? 1 : 2;  // keys and values together, or one by one
        for (std::int64_t i = 0; i < parts; ++i) {
            all.push_back({kv / parts, h_, copied ? ParameterRange::kv_sum : ParameterRange::dense, model_.qkv_bias});
        }
    }
    all.push_back({h_, heads_ * value_width_});
    const auto mlp = [&](std::int64_t f, bool bias) {
        for (std::int64_t i = 0; i < mlp_products_; ++i) {
            all.push_back({gates_ * f / mlp_products_, h_, ParameterRange::dense, bias});
        }
        all.push_back({h_, f});
    };
    if (!experts) {
        mlp(model_.ffn_hidden / tp_, model_.mlp_bias);
        return all;
    }
    const models::MixtureOfExperts& moe = model_.moe;
    if (moe.shared_ffn_hidden > 0) mlp(moe.shared_ffn_hidden / tp_, false);
    const std::int64_t f = moe.expert_ffn_hidden / p_.etp;
    const std::int64_t count = moe.expert_count / p_.ep;
    all.push_back({gates_ * f, h_, ParameterRange::expert, false, count});
    all.push_back({h_, f, ParameterRange::expert, false, count});
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
    Bases e{};
    for (const Matrix& m : block_matrices(experts)) e[m.range] += m.count * m.n * (m.k + (m.has_bias ? 1 : 0));
    std::int64_t& tokens = e[token_range_];
    tokens += (model_.shared_input_norm ? 1 : 2) * norm_elements(h_);
    tokens += model_.attention_output_bias ? h_ : 0;
    if (is_latent_) {
        tokens += norm_elements(model_.latent.q_lora_rank) + norm_elements(model_.latent.kv_lora_rank);
    } else if (model_.qk_norm) {
        e[tp_ > 1 ? ParameterRange::tensor_sum : ParameterRange::dense] += 2 * model_.head_dim;
    }
    if (experts) {
        tokens += model_.moe.expert_count * h_ + (model_.moe.shared_expert_gate ? h_ : 0);
    } else {
        tokens += model_.mlp_bias ? h_ : 0;
    }
    return e;
}

std::int64_t ClosedForms::expert_blocks(std::int64_t first, std::int64_t count) const {
    std::int64_t sum = 0;
    for (std::int64_t block = first; block < first + count; ++block) sum += model_.is_expert_layer(block) ? 1 : 0;
    return sum;
}

namespace {
void add_to(Bases& sum, const Bases& elements, std::int64_t times) {
    for (const ParameterRange r : kRanges) sum[r] += elements[r] * times;
}
}  // namespace

Bases ClosedForms::elements_of(const RankClass& ranks, const Chunk& chunk) const {
    const std::int64_t vocabulary = padded_vocab_ / vocabulary_shards_;
    const std::int64_t experts = expert_blocks(chunk.first_block, chunk.block_count);
    Bases sum{};
    add_to(sum, block_elements(false), chunk.block_count - experts);
    if (experts > 0) add_to(sum, block_elements(true), experts);
    std::int64_t& tokens = sum[token_range_];
    const bool lookup = chunk.part == ChunkPart::vocabulary_input;
    if (chunk.has_embedding || lookup) sum[ParameterRange::dense] += vocabulary * h_;
    if (chunk.has_embedding || (lookup && ranks.pp_index == 0)) {
        if (model_.position == models::PositionKind::learned) {
            tokens += (model_.max_positions + model_.position_offset) * h_;
        }
        tokens += model_.token_types * h_ + (model_.embedding_norm ? norm_elements(h_) : 0);
    }
    const bool keeps_norm =
        p_.spreads_vocabulary() && chunk.part == ChunkPart::stage && chunk.virtual_stage == p_.pp - 1;
    if (chunk.has_head || keeps_norm) {
        tokens += model_.final_norm ? norm_elements(h_) : 0;
        tokens += model_.head_transform ? h_ * h_ + h_ + norm_elements(h_) : 0;
    }
    if (chunk.has_head || chunk.part == ChunkPart::vocabulary_output) {
        sum[ParameterRange::dense] += (model_.head_bias ? vocabulary : 0) + (ties_on_rank() ? 0 : vocabulary * h_);
    }
    return sum;
}

Bases ClosedForms::elements_of(const RankClass& ranks) const {
    Bases sum{};
    for (const Chunk& chunk : ranks.chunks) add_to(sum, elements_of(ranks, chunk), 1);
    return sum;
}

}  // namespace orrery::program::rules
