// Private to the lowerings: a layer as the plan runs it. Starting from the operators and boundaries of models/,
// lowering decides what is recomputed, what a split backward keeps for its weight gradients, and where each slot lies.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "models/layer.h"
#include "sim/program/program.h"

namespace orrery::program {

/// Alignment of tensors in bytes: a cache line, which is also the widest vector load.
inline constexpr std::int64_t kAlignment = 64;
[[nodiscard]] constexpr std::int64_t align(std::int64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// How the flat order of parameters is padded, so that buckets and units can be cut into equal shards.
struct FlatPadding {
    /// Of the experts' parameters, or of all others.
    struct Part {
        std::int64_t multiple = 1;  // buckets and units end at multiples of this
        std::int64_t shards = 1;    // number of shards
        bool operator==(const Part&) const = default;
    };
    Part dense, expert;
    bool each_parameter = false;    // dim 0 of each parameter is padded to a multiple of the shards (FSDP2)
    bool keeps_tied_apart = false;  // padding around a tied embedding lets it be a bucket by itself
    [[nodiscard]] const Part& of(ParameterRange range) const {
        return range == ParameterRange::expert ? expert : dense;
    }
    bool operator==(const FlatPadding&) const = default;
};

struct LayerOptions {
    FlatPadding padding;
    bool overwrites_gradients = false;   // gradients lie in a window that other layers' gradients used before
    bool adds_to_tied_gradient = false;  // a tied embedding's gradient contains the head's part already
    bool splits_backward = false;
    Recompute recompute = Recompute::none;
    std::array<bool, models::kBlockParts> parts{};  // selective: the recomputed parts
    bool stops_early = false;                       // full: steps that the backward pass does not need are skipped
    bool shards_checkpoint = false;                 // full: the layer's input is sharded over tp
    std::int64_t tp = 1;
    bool leaves_communication_open = false;  // passes end while their communication is in flight; other actions wait
    bool operator==(const LayerOptions&) const = default;
};

/// The result of lowering, shared by all layers of one kind with the same options.
struct LoweredLayer {
    models::LayerKind kind{};
    LayerOptions options;
    IndexedVector<models::SlotIndex, Slot> slots;
    /// With a split backward all three backward lists are filled, because some schedules (dualpipe) split the backward
    /// of some micro-batches only.
    std::vector<models::Step> prepare, forward, backward, backward_input, backward_weight;
    std::vector<models::SlotIndex> ready_order;  // own parameter slots, in the order in which gradients are complete
    std::vector<std::int64_t> paddings;          // by ready_order: unused elements after the parameter
    Bases elements{};                            // own parameters and their padding, by range
    std::int64_t saved_bytes = 0;                // frame bytes without the layer's input and its gradient
    std::int64_t weight_copy_bytes = 0;
    std::int64_t hidden_in_bytes = 0;        // 0: the layer has no input (embedding)
    std::int64_t hidden_gradient_bytes = 0;  // split backward: the incoming gradient, which is kept for W
    bool keeps_hidden_in = true;             // false: the input may be overwritten after the forward pass

    [[nodiscard]] const std::vector<models::Step>& steps(Phase pass) const;
    [[nodiscard]] std::int64_t parameter_elements() const;
    [[nodiscard]] const models::SlotDecl& decl(models::SlotIndex slot) const { return slots[slot].decl; }
};

[[nodiscard]] LoweredLayer lower_layer(models::Layer layer, const LayerOptions& options);

}  // namespace orrery::program
