// Private to the lowerings: turns one pass over a Layer into a Body. Cuts it where another stream needs an event, ties
// the streams together, and lays out the transient arena.
#pragma once

#include <cstdint>
#include <vector>

#include "models/layer.h"
#include "sim/program/program.h"

namespace orrery::program {

/// Offsets of tensors are multiples of a cache line, which is also the widest vector load.
inline constexpr std::int64_t kAlignment = 64;
[[nodiscard]] constexpr std::int64_t align(std::int64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Where each slot of a layer lies; parallel to Layer::slots.
struct SlotPlace {
    Space space{};
    std::int64_t offset = 0;
};

/// A bucket that becomes complete when `gradient_slot` has been written; offsets relative to the segment's bases.
struct BucketCut {
    models::SlotIndex gradient_slot = models::kNoSlot;
    Space space = Space::gradient;
    std::int64_t offset = 0;
    std::int64_t elements = 0;
    bool operator==(const BucketCut&) const = default;
};

[[nodiscard]] Body build_body(const models::Layer& layer, Phase phase, const std::vector<SlotPlace>& places,
                              const std::vector<BucketCut>& buckets);

/// A body of a single communication on one slot.
[[nodiscard]] Body communication_body(Phase phase, const std::string& name, Stream stream, CommKind kind,
                                      GroupAxis axis, Slot slot);

/// What one call of a body does to memory, by the issue-order walk and relative to its start, in bytes. Saved
/// activations appear at their first write in the forward pass and go after their last use in the backward pass.
struct BodyMemory {
    std::int64_t activation_net = 0;
    std::int64_t activation_peak = 0;  // >= 0
    std::int64_t transient_peak = 0;
    std::int64_t joint_peak = 0;  // activations and transients together
};
[[nodiscard]] BodyMemory walk_body(const Body& body, bool hidden_in_in_frame, bool hidden_out_in_frame);

}  // namespace orrery::program
