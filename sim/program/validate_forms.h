// Closed forms with which the rules "parameters", "footprint" and "bytes" compare a Program. They are derived from the
// plan alone, independently of the lowering and of the layers.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "sim/program/program.h"

namespace orrery::program::rules {

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
    [[nodiscard]] std::int64_t ranks(bool expert) const { return expert ? expert_ranks : dense_ranks; }
    [[nodiscard]] std::int64_t shards(bool expert) const { return expert ? expert_shards : dense_shards; }
    [[nodiscard]] bool reduces(bool expert) const { return ranks(expert) > 1; }
};

/// `count` weight matrices [n, k] of equal shape on one rank.
struct Matrix {
    std::int64_t n = 0, k = 0, count = 1;
};

using BytesByKind = std::map<std::pair<GroupAxis, CommKind>, std::int64_t>;

class ClosedForms {
  public:
    explicit ClosedForms(const Plan& plan);

    [[nodiscard]] const Plan& plan() const { return plan_; }
    [[nodiscard]] const Sharding& sharding() const { return sharding_; }
    [[nodiscard]] std::int64_t padded_vocabulary() const { return padded_vocab_; }
    /// The number of tp ranks that hold a copy of the same key/value head; 1: no copies.
    [[nodiscard]] std::int64_t kv_copies() const { return kv_copies_; }
    /// Whether the head reads the tied embedding weight on its own rank.
    [[nodiscard]] bool ties_on_rank() const;
    /// Whether the ranks hold one of two copies of a tied embedding, whose gradients are summed.
    [[nodiscard]] bool sums_tied_copies(const RankClass& ranks) const;

    /// Elements of a rank's parameters by range, without padding.
    [[nodiscard]] Bases elements_of(const RankClass& ranks) const;
    [[nodiscard]] std::int64_t element_count(const RankClass& ranks) const;
    /// Bytes of the fp8 or fp4 copies of one block's weights, each tensor aligned.
    [[nodiscard]] std::int64_t weight_copy_bytes(bool experts) const;
    /// The number of micro-batches that pass the chunk in a step.
    [[nodiscard]] std::int64_t passes(const Chunk& chunk) const;
    /// How often in a step the chunk's gradients are reduced over the data-parallel ranks.
    [[nodiscard]] std::int64_t reductions(const RankClass& ranks, const Chunk& chunk) const;
    /// Elements of the hidden state in a boundary buffer.
    [[nodiscard]] std::int64_t hidden_elements() const;

    /// Message bytes (see CommKind) of one step, without the reductions and gathers of buckets and units.
    [[nodiscard]] BytesByKind model_bytes(const RankClass& ranks) const;

  private:
    /// Whether residual additions have a dropout mask.
    [[nodiscard]] bool masks_residuals() const;
    struct Traffic {
        const ClosedForms& forms;
        BytesByKind bytes;
        void add(GroupAxis axis, CommKind kind, std::int64_t elements, DType dtype, std::int64_t times = 1);
        /// All-gather into a tensor-parallel region. Without sequence parallelism every rank has all tokens already.
        void gather(std::int64_t elements, DType dtype, std::int64_t times = 1);
        /// The gather of a GEMM's input. With pipelined_gather: pieces that go round a ring while the GEMM runs.
        void gather_for_product(std::int64_t elements, DType dtype, std::int64_t times = 1);
        /// The gather of a GEMM's input for the backward pass, unless the forward pass has kept it. `in_pieces`: the
        /// forward gather is pipelined if the implementation pipelines gathers, and then its result is not kept.
        void gather_in_backward(std::int64_t elements, DType dtype, std::int64_t times, bool in_pieces = true);
        /// Reduces the partial sums at the end of a tensor-parallel region.
        void reduce_partial_sums(std::int64_t elements, std::int64_t times = 1);
        /// Reduces the gradient of an input that `products` GEMMs read.
        void reduce_input_gradients(std::int64_t elements, std::int64_t times, std::int64_t products);
        /// As reduce_partial_sums. With pipelined_gather: pieces that go round a ring while the GEMM runs.
        void reduce_after_product(std::int64_t elements, std::int64_t times = 1);
    };
    [[nodiscard]] Bases block_elements(bool experts) const;
    [[nodiscard]] std::vector<Matrix> block_matrices(bool experts) const;
    /// The number of GEMMs that read the input of attention (q, k and v) or of the MLP (gate and up).
    [[nodiscard]] std::int64_t attention_input_products() const;
    [[nodiscard]] std::int64_t mlp_input_products() const;
    /// Whether selective recomputation recomputes the part.
    [[nodiscard]] bool recomputes(models::BlockPart part) const;
    /// The width in elements of operand_type() that a row of `width` elements has as an operand, scales included.
    [[nodiscard]] std::int64_t operand_width(std::int64_t width) const;
    /// The type in which the GEMMs of a block read their operands.
    [[nodiscard]] DType operand_type() const;
    void add_block(Traffic& traffic, bool experts, bool recomputed, std::int64_t times) const;
    void add_attention(Traffic& traffic, std::int64_t again_projection, std::int64_t again_core,
                       std::int64_t times) const;
    void add_experts(Traffic& traffic, bool recomputed, std::int64_t times) const;
    void add_embedding_and_head(Traffic& traffic, const Chunk& chunk, std::int64_t times) const;
    void add_vocabulary(Traffic& traffic, const Chunk& chunk, std::int64_t times) const;
    void add_step_end(Traffic& traffic, const RankClass& ranks) const;
    void add_transfers(Traffic& traffic, const RankClass& ranks) const;
    /// Parameters of a norm of that width.
    [[nodiscard]] std::int64_t norm_elements(std::int64_t width) const;
    /// The range of parameters that every tensor-parallel rank holds whole.
    [[nodiscard]] ParameterRange token_range() const;

    const Plan& plan_;
    const models::ModelSpec& model_;
    Sharding sharding_;
    std::int64_t tp_ = 1, cp_ = 1;
    bool sequence_parallel_ = false;      // outside tensor-parallel regions, tokens are sharded over tp
    std::int64_t vocabulary_shards_ = 1;  // over tp, or over the stages
    std::int64_t padded_vocab_ = 0;
    std::int64_t kv_copies_ = 1;
    std::int64_t heads_ = 0, kv_heads_ = 0;  // of one rank
    std::int64_t rows_ = 0;                  // tokens in tensor-parallel regions: sequence / cp x micro-batch
    DType activation_{};
};

}  // namespace orrery::program::rules
