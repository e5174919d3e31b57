// Training settings that decide how a layer is computed and sharded.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace orrery::models {

enum class ContextParallel : std::uint8_t {
    ring,        // keys and values travel from rank to rank and overlap with the attention over those already received
    all_gather,  // keys and values are gathered before the attention
    ulysses,     // all-to-all from shards of the sequence to shards of the heads, and back
};
[[nodiscard]] std::string_view name_of(ContextParallel kind);

/// How the operands of fp8 and fp4 products are scaled.
enum class Fp8Scaling : std::uint8_t {
    none,        // products run in the activation type
    delayed,     // per-tensor scales from the maxima of earlier steps
    tensorwise,  // per-tensor scales from the current values: one more pass over each operand
    mx,          // a scale for each 32 elements (mxfp8)
    nvfp4,       // fp4 with an fp8 scale for each 16 elements
    mxfp4,       // fp4 with a scale for each 32 elements
};
[[nodiscard]] std::string_view name_of(Fp8Scaling scaling);
/// Type of the operands; throws on `none`.
[[nodiscard]] DType operand_type(Fp8Scaling scaling);
/// Bytes of this many consecutive elements, with their one-byte scales.
[[nodiscard]] std::int64_t operand_bytes(Fp8Scaling scaling, std::int64_t elements);

/// How unevenly tokens choose experts.
struct ExpertLoad {
    double imbalance = 1.0;         // tokens of the busiest rank over the mean; times are computed with it
    double capacity_factor = 0.0;   // > 0: an expert drops tokens beyond this times the mean; 0: no tokens are dropped
    bool pads_to_capacity = false;  // every expert computes its full capacity
    double largest = 0.0;  // upper bound over the mean, for the memory layout; 0: the capacity, or the imbalance
    /// Tokens of each expert, in any common unit; empty: only `imbalance` is known.
    std::vector<double> shares{};
    bool operator==(const ExpertLoad&) const = default;
    /// Tokens of the busiest of `ranks` ranks over the mean, if each rank holds equally many consecutive experts; 1
    /// without shares.
    [[nodiscard]] double imbalance_over(std::int64_t ranks) const;
    /// Tokens that the busiest rank computes over the mean. Padded to capacity: the capacity factor.
    [[nodiscard]] double expected() const {
        if (capacity_factor <= 0) return imbalance;
        return pads_to_capacity || imbalance > capacity_factor ? capacity_factor : imbalance;
    }
    [[nodiscard]] double bound() const {
        if (largest > 0) return largest > expected() ? largest : expected();
        return capacity_factor > 0 ? capacity_factor : imbalance;
    }
};

/// Parts of a block whose values may be recomputed in the backward pass instead of being saved.
enum class BlockPart : std::uint8_t {
    none,
    norm,
    attention_projection,  // q, k, v: products, head norms and rotation
    attention_core,        // from scores to context
    attention_output,
    mlp_in,
    activation,
    mlp_out,
    router,
    experts,  // permutation, both products and the activation of routed experts
    shared_expert,
    residual,
};
inline constexpr int kBlockParts = static_cast<int>(BlockPart::residual) + 1;
[[nodiscard]] std::string_view name_of(BlockPart part);

}  // namespace orrery::models
