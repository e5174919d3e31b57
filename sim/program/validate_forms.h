// Closed forms that the rules on parameters, memory and bytes compare a Program with. They come from the plan alone
//: nothing here asks how the lowering or the layers do it.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "sim/program/program.h"

namespace orrery::program::rules {

/// How the plan's data-parallel ranks share gradients, states and parameters.
struct Sharding {
    std::int64_t dense_ranks = 1, expert_ranks = 1;    // that sum gradients
    std::int64_t dense_shards = 1, expert_shards = 1;  // that share one set of shards
    bool states = false;                               // any shards at all (ZeRO-1 to 3)
    bool units = false;        // the flat order goes by unit: parameters are gathered or gradients reduced so
    bool gathers = false;      // parameters lie sharded and are gathered by unit (ZeRO-3)
    bool reduces = false;      // gradients go to shards after each backward
    bool scatters = false;     // gradients cross by reduce-scatter, otherwise by all-reduce
    bool replicates = false;   // several sets of shards (HSDP): shards are summed over them
    bool staged = false;       // gradients cross from a buffer of their own
    DType made = DType::fp32;  // the type that backward passes write
    [[nodiscard]] std::int64_t ranks(bool expert) const { return expert ? expert_ranks : dense_ranks; }
    [[nodiscard]] std::int64_t shards(bool expert) const { return expert ? expert_shards : dense_shards; }
    [[nodiscard]] bool sums(bool expert) const { return ranks(expert) > 1; }
};

/// A matrix product with weights of its own on this rank.
struct Matrix {
    std::int64_t n = 0, k = 0, count = 1;
};

using BytesByKind = std::map<std::pair<GroupAxis, CommKind>, std::int64_t>;

class Forms {
  public:
    explicit Forms(const Plan& plan);

    [[nodiscard]] const Plan& plan() const { return plan_; }
    [[nodiscard]] const Sharding& sharding() const { return sharding_; }
    [[nodiscard]] std::int64_t padded_vocabulary() const { return padded_vocab_; }
    /// Neighbours in tp that hold a copy of one key/value head; 1: none.
    [[nodiscard]] std::int64_t kv_copies() const { return kv_copies_; }
    /// The head finds the embedding's weight on its own rank.
    [[nodiscard]] bool ties_on_rank() const;
    /// The pipeline's first and last ranks each hold one copy of a tied embedding, and sum their gradients.
    [[nodiscard]] bool sums_tied_copies(const RankClass& ranks) const;

    /// Elements of a rank's parameters, by range.
    [[nodiscard]] Bases elements_of(const RankClass& ranks) const;
    [[nodiscard]] std::int64_t element_count(const RankClass& ranks) const;
    /// Bytes of the fp8 copies of one block's weights, each tensor aligned.
    [[nodiscard]] std::int64_t weight_copy_bytes(bool experts) const;
    /// Micro-batches that pass the chunk in a step.
    [[nodiscard]] std::int64_t passes(const Chunk& chunk) const;
    /// How often in a step a rank's gradients of the chunk cross data-parallel ranks.
    [[nodiscard]] std::int64_t reductions(const RankClass& ranks, const Chunk& chunk) const;
    /// Elements of a boundary buffer.
    [[nodiscard]] std::int64_t hidden_elements() const;

    /// Message bytes (CommKind's S) of one step, but those of buckets and units.
    [[nodiscard]] BytesByKind model_bytes(const RankClass& ranks) const;

  private:
    /// Residual sums have a dropout mask.
    [[nodiscard]] bool masks_residuals() const;
    struct Traffic {
        const Forms& forms;
        BytesByKind bytes;
        void add(GroupAxis axis, CommKind kind, std::int64_t elements, DType dtype, std::int64_t times = 1);
        void gather(std::int64_t elements, DType dtype, std::int64_t times = 1);
        /// Cut into pieces that travel in a ring beside the product, where the implementation does so.
        void gather_for_product(std::int64_t elements, DType dtype, std::int64_t times = 1);
        /// A product's input in the backward pass, unless the forward pass kept it.
        void gather_again(std::int64_t elements, DType dtype, std::int64_t times, bool in_pieces = true);
        void leave(std::int64_t elements, std::int64_t times = 1);
        void leave_inputs(std::int64_t elements, std::int64_t times, std::int64_t products);
        void leave_in_pieces(std::int64_t elements, std::int64_t times = 1);
    };
    [[nodiscard]] Bases block_elements(bool experts) const;
    [[nodiscard]] std::vector<Matrix> block_matrices(bool experts) const;
    [[nodiscard]] std::int64_t attention_inputs() const;
    [[nodiscard]] std::int64_t mlp_inputs() const;
    [[nodiscard]] bool repeats(models::BlockPart part) const;
    [[nodiscard]] std::int64_t operand_width(std::int64_t width) const;
    [[nodiscard]] DType operand_type() const;
    void add_block(Traffic& traffic, bool experts, bool recomputed, std::int64_t times) const;
    void add_attention(Traffic& traffic, std::int64_t again_projection, std::int64_t again_core,
                       std::int64_t times) const;
    void add_experts(Traffic& traffic, bool recomputed, std::int64_t times) const;
    void add_ends(Traffic& traffic, const Chunk& chunk, std::int64_t times) const;
    void add_vocabulary(Traffic& traffic, const Chunk& chunk, std::int64_t times) const;
    void add_step_end(Traffic& traffic, const RankClass& ranks) const;
    void add_transfers(Traffic& traffic, const RankClass& ranks) const;
    [[nodiscard]] std::int64_t norm(std::int64_t width) const;
    [[nodiscard]] std::size_t token_range() const;

    const Plan& plan_;
    const models::ModelSpec& model_;
    Sharding sharding_;
    std::int64_t t_ = 1, c_ = 1;
    bool sharded_ = false;              // token-wise regions are cut over tp
    std::int64_t vocabulary_cuts_ = 1;  // over tensor-parallel ranks, or over the stages
    std::int64_t padded_vocab_ = 0;
    std::int64_t kv_copies_ = 1;
    std::int64_t heads_ = 0, kv_heads_ = 0;  // of this rank
    std::int64_t rows_ = 0;                  // tokens in tensor regions: s/c * b
    DType activation_{};
};

}  // namespace orrery::program::rules
