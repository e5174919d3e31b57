// How a layer is computed and cut, as far as training settings decide it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace orrery::models {

enum class ContextParallel : std::uint8_t {
    ring,        // keys and values travel from rank to rank beside the attention of what is already there
    all_gather,  // keys and values are gathered before the attention
    ulysses,     // heads are exchanged for positions by all-to-all, and back
};
[[nodiscard]] std::string_view name_of(ContextParallel kind);

/// How narrow products get their operands: in fp8, or in fp4.
enum class Fp8Scaling : std::uint8_t {
    none,        // products run in the activation type
    delayed,     // per-tensor scales from the maxima of earlier steps
    tensorwise,  // per-tensor scales of the present values: one more pass over each operand
    mx,          // a scale for each 32 elements (mxfp8)
    nvfp4,       // fp4 with an fp8 scale for each 16 elements
    mxfp4,       // fp4 with a scale for each 32 elements
};
[[nodiscard]] std::string_view name_of(Fp8Scaling scaling);
/// Of the operands; throws on `none`.
[[nodiscard]] DType operand_type(Fp8Scaling scaling);
/// Bytes of so many elements in a row, their scales of one byte included.
[[nodiscard]] std::int64_t operand_bytes(Fp8Scaling scaling, std::int64_t elements);

/// How unevenly tokens choose experts.
struct ExpertLoad {
    double imbalance = 1.0;         // tokens of the busiest rank over the mean: what time goes by
    double capacity_factor = 0.0;   // > 0: tokens beyond this times the mean are dropped; 0: none are
    bool pads_to_capacity = false;  // every expert computes its capacity, filled or not
    double largest = 0.0;  // bound over the mean for which memory is laid out; 0: the capacity, or the imbalance
    /// What each expert gets of the tokens, in any common unit; empty: only `imbalance` is known.
    std::vector<double> shares{};
    bool operator==(const ExpertLoad&) const = default;
    /// The busiest of `ranks` ranks over the mean, when each holds an equal run of consecutive experts; 1 without
    /// shares.
    [[nodiscard]] double imbalance_over(std::int64_t ranks) const;
    /// Tokens a rank computes over the mean: 1 padded to capacity takes the capacity factor.
    [[nodiscard]] double expected() const {
        if (capacity_factor <= 0) return imbalance;
        return pads_to_capacity || imbalance > capacity_factor ? capacity_factor : imbalance;
    }
    [[nodiscard]] double bound() const {
        if (largest > 0) return largest > expected() ? largest : expected();
        return capacity_factor > 0 ? capacity_factor : imbalance;
    }
};

/// Parts of a block whose values may be computed again in the backward pass instead of being saved.
enum class BlockPart : std::uint8_t {
    none,
    norm,
    attention_projection,  // q, k, v: products, their norms and the rotation
    attention_core,        // scores to context
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
