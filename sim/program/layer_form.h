// Private to the lowerings: a layer as the plan runs it. From the operators and boundaries that models/ gives, it works
// out what is recomputed, what a split backward keeps for its weight gradients, and where each slot lies.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "models/layer.h"
#include "sim/program/program.h"

namespace orrery::program {

/// Offsets of tensors are multiples of a cache line, which is also the widest vector load.
inline constexpr std::int64_t kAlignment = 64;
[[nodiscard]] constexpr std::int64_t align(std::int64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Where each slot of a layer lies; parallel to LayerForm::slots.
struct SlotPlace {
    Space space{};
    std::int64_t offset = 0;
    ParameterRange range = ParameterRange::dense;
    std::optional<GroupAxis> own_block{};  // as Slot has it
};

/// Of what lies in a frame: the pass that first writes it and the one that last needs it.
struct SlotLife {
    Phase born = Phase::forward;
    Phase dies = Phase::backward;
};

/// Where the flat order of parameters is padded, so that buckets and units can be cut into equal shards.
struct FlatPadding {
    std::int64_t dense = 1, expert = 1;  // shards begin at multiples of these
    std::int64_t dense_shards = 1, expert_shards = 1;
    bool each_parameter = false;    // dim 0 of each to a multiple of the shards (FSDP2)
    bool keeps_tied_apart = false;  // a tied embedding can be a bucket of its own
    [[nodiscard]] std::int64_t multiple(ParameterRange range) const {
        return range == ParameterRange::expert ? expert : dense;
    }
    bool operator==(const FlatPadding&) const = default;
};

struct FormOptions {
    FlatPadding padding;
    bool overwrites_gradients = false;   // they lie in windows that hold those of another layer before
    bool adds_to_tied_gradient = false;  // the head's part of a tied embedding's gradient is there already
    bool splits_backward = false;
    Recompute recompute = Recompute::none;
    std::array<bool, models::kBlockParts> parts{};  // selective: what is computed again
    bool stops_early = false;                       // full: nothing is computed again that nobody needs
    bool shards_checkpoint = false;                 // full: the input is kept in tp parts
    std::int64_t tp = 1;
    bool leaves_communication_open = false;  // other actions wait for what its passes have under way at their end
    bool operator==(const FormOptions&) const = default;
};

/// What all layers of one kind with the same options share.
struct LayerForm {
    models::LayerKind kind{};
    FormOptions options;
    models::Slots slots;
    IndexedVector<models::SlotIndex, SlotPlace> places;
    IndexedVector<models::SlotIndex, SlotLife> lives;
    /// A split backward has all three: some schedules run both parts of a micro-batch in one (dualpipe).
    std::vector<models::Step> prepare, forward, backward, backward_input, backward_weight;
    std::vector<models::SlotIndex> ready_order;  // own parameter slots by when their gradient is complete
    std::vector<std::int64_t> paddings;          // elements behind each of them
    Bases elements{};                            // of own parameters and their padding, by range
    std::int64_t saved_bytes = 0;                // frame bytes without the layer's input and its gradient
    std::int64_t weight_copy_bytes = 0;
    std::int64_t hidden_in_bytes = 0;        // 0: the layer has no input (embedding)
    std::int64_t hidden_gradient_bytes = 0;  // split backward: of the gradient that comes in, kept for W
    bool keeps_hidden_in = true;             // false: its input may be overwritten once the forward is done

    [[nodiscard]] std::int64_t parameter_elements() const;
    /// The gradient slot of a parameter slot; a BugError when it has none.
    [[nodiscard]] models::SlotIndex gradient_of(models::SlotIndex parameter) const;
    [[nodiscard]] const models::SlotDecl& slot(models::SlotIndex index) const { return slots[index]; }
};

[[nodiscard]] LayerForm make_form(models::Layer layer, const FormOptions& options);

}  // namespace orrery::program
