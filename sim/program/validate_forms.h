// Closed forms with which the rules "parameters", "footprint" and "bytes" compare a Program. They are derived from the
// plan alone, independently of the lowering and of the layers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/program/program.h"
#include "sim/program/validate_rules.h"

namespace orrery::program::rules {

[[nodiscard]] constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}
/// The size of an allocation.
[[nodiscard]] constexpr std::int64_t aligned(std::int64_t bytes) {
    return round_up(bytes, 64);
}

/// How the plan's data-parallel ranks reduce gradients and shard states, gradients and parameters.
struct Sharding {
    std::int64_t dense_ranks = 1, expert_ranks = 1;    // ranks that reduce gradients together
    std::int64_t dense_shards = 1, expert_shards = 1;  // number of shards; 1: states are not sharded
    bool shards_states = false;                        // ZeRO-1 to 3
    bool gathers_units = false;                        // parameters are sharded at rest and gathered by unit (ZeRO-3)
    bool reduces_units = false;                        // gradients are reduced by unit into shards after each backward
    bool orders_by_unit = false;         // the flat order goes by unit, not by range: gathers_units or reduces_units
    bool reduce_scatters = false;        // gradients are reduce-scattered, otherwise all-reduced
    bool replicates = false;             // several sets of shards (HSDP): the shards are all-reduced over the sets
    bool staged = false;                 // gradients are reduced from a staging buffer
    DType gradient_dtype = DType::fp32;  // the type in which backward passes write gradients
    DType reduced_dtype = DType::fp32;   // the type in which their sums over ranks are kept
    [[nodiscard]] std::int64_t shards(ParameterRange range) const {
        return range == ParameterRange::expert ? expert_shards : dense_shards;
    }
    [[nodiscard]] bool reduces(ParameterRange range) const {
        return (range == ParameterRange::expert ? expert_ranks : dense_ranks) > 1;
    }
};

[[nodiscard]] Sharding sharding_of(const Plan& plan);

/// `count` weight matrices [n, k] of equal shape on one rank.
struct Matrix {
    std::int64_t n = 0, k = 0;
    ParameterRange range = ParameterRange::dense;
    bool has_bias = false;  // of n elements
    std::int64_t count = 1;
};

/// The parameters that begin in a bucket.
struct BucketContents {
    bool begins_one = false;  // the bucket begins with a parameter
    ChunkIndex chunk = 0;     // of that parameter
    bool has_one_chunk = true;
    std::int32_t first_layer = 0, last_layer = 0;
    bool is_root = false;  // it holds the embedding (layer -1) or the head (layer L) as a root unit, which stays
                           //   gathered from the forward to the backward pass
};
[[nodiscard]] BucketContents contents_of(const Plan& plan, const RankClass& ranks, const Bucket& bucket);

class ClosedForms {
  public:
    explicit ClosedForms(const Plan& plan) : plan_(plan) {}

    [[nodiscard]] const Sharding& sharding() const { return sharding_; }
    [[nodiscard]] std::int64_t padded_vocabulary() const { return padded_vocab_; }
    /// The number of tp ranks that hold a copy of the same key/value head; 1: no copies.
    [[nodiscard]] std::int64_t kv_copies() const { return kv_copies_; }
    /// Whether the head reads the tied embedding weight on its own rank.
    [[nodiscard]] bool ties_on_rank() const {
        return model_.tied_embeddings && (p_.ends_meet() || p_.spreads_vocabulary());
    }
    /// How many of the blocks [first, first + count) have experts.
    [[nodiscard]] std::int64_t expert_blocks(std::int64_t first, std::int64_t count) const;

    /// Elements of a rank's parameters by range, without padding: those of one chunk, or all.
    [[nodiscard]] Bases elements_of(const RankClass& ranks, const Chunk& chunk) const;
    [[nodiscard]] Bases elements_of(const RankClass& ranks) const;
    /// Bytes of the fp8 or fp4 copies of one block's weights, each tensor aligned.
    [[nodiscard]] std::int64_t weight_copy_bytes(bool experts) const;
    /// The number of micro-batches that pass the chunk in a step.
    [[nodiscard]] std::int64_t passes(const Chunk& chunk) const {
        const MicroBatches range = micro_batches_of(plan_, chunk);
        return range.end - range.begin;
    }
    /// How often in a step the chunk's gradients are reduced over the data-parallel ranks.
    [[nodiscard]] std::int64_t reductions(const RankClass& ranks, const Chunk& chunk) const;
    /// Elements of the hidden state in a boundary buffer.
    [[nodiscard]] std::int64_t hidden_elements() const { return rows_ * h_ / (sequence_parallel_ ? tp_ : 1); }

  protected:
    const Plan& plan_;
    const models::ModelSpec& model_ = plan_.model;
    const Parallelism& p_ = plan_.parallelism;
    const std::int64_t h_ = model_.hidden;
    const Sharding sharding_ = sharding_of(plan_);
    const std::int64_t tp_ = p_.tp, cp_ = p_.cp;
    // Outside tensor-parallel regions, tokens are sharded over tp.
    const bool sequence_parallel_ = p_.sequence_parallel && tp_ > 1;
    const std::int64_t vocabulary_shards_ = p_.spreads_vocabulary() ? p_.pp : tp_;
    const std::int64_t padded_vocab_ =
        models::padded_vocabulary(model_, plan_.implementation.vocab_multiple, vocabulary_shards_);
    const bool is_latent_ = model_.has_latent_attention();
    const std::int64_t kv_copies_ = !is_latent_ && tp_ > model_.kv_heads ? tp_ / model_.kv_heads : 1;
    // Heads of one rank, and the widths of one head's queries or keys and of its values.
    const std::int64_t heads_ = model_.heads / tp_;
    const std::int64_t kv_heads_ = is_latent_ ? heads_ : std::max<std::int64_t>(model_.kv_heads / tp_, 1);
    const std::int64_t key_width_ =
        is_latent_ ? model_.latent.nope_head_dim + model_.latent.rope_head_dim : model_.head_dim;
    const std::int64_t value_width_ = is_latent_ ? model_.latent.v_head_dim : model_.head_dim;
    // The input of the projections of queries, and the compressed keys and values.
    const std::int64_t q_input_ = model_.latent.q_lora_rank > 0 ? model_.latent.q_lora_rank : h_;
    const std::int64_t latent_ = model_.latent.kv_lora_rank + model_.latent.rope_head_dim;
    // Tokens in tensor-parallel regions.
    const std::int64_t rows_ = plan_.training.sequence_length / cp_ * plan_.training.micro_batch_size;
    const DType activation_ = plan_.training.precision.activation;
    // Each tensor-parallel rank holds these parameters whole. With sequence parallelism it computes their gradients
    // from its own tokens only, so that they are summed over tp.
    const ParameterRange token_range_ = sequence_parallel_ ? ParameterRange::tensor_sum : ParameterRange::dense;
    // The number of GEMMs that read the input of attention (q, k and v) or of the MLP (gate and up).
    const models::KernelChoices& kernels_ = plan_.implementation.kernels;
    const std::int64_t attention_products_ = !kernels_.merged_projections ? 3 : kv_copies_ > 1 ? 2 : 1;
    const std::int64_t gates_ = model_.mlp == models::MlpKind::swiglu ? 2 : 1;
    const std::int64_t mlp_products_ = kernels_.merged_projections && kernels_.merged_gate ? 1 : gates_;

  private:
    [[nodiscard]] Bases block_elements(bool experts) const;
    [[nodiscard]] std::vector<Matrix> block_matrices(bool experts) const;
    /// Parameters of a norm of that width.
    [[nodiscard]] std::int64_t norm_elements(std::int64_t width) const {
        return model_.norm == models::NormKind::layer_norm ? 2 * width : width;
    }
};

}  // namespace orrery::program::rules
