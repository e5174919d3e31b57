// The activations and transients in a rank's memory when MemoryFootprint::live_peak is reached.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/program/body_builder.h"
#include "sim/program/program.h"

namespace orrery::program {

/// The slots of one name, summed over layers and micro-batches.
struct LiveSlots {
    std::string name;  // the slot's name; "hidden", "hidden_gradient": passed from layer to layer
    bool transient = false;
    std::int64_t count = 0;
    std::int64_t bytes = 0;
};

struct PeakContents {
    ActionIndex action = -1;            // MemoryFootprint::peak_action; -1: nothing above MemoryFootprint::fixed()
    std::int32_t layer = 0;             // layer in which the peak is reached
    std::int64_t micro_batches = 0;     // (chunk, micro-batch) pairs with saved activations at that moment
    std::int64_t activation_bytes = 0;  // activation_bytes + transient_bytes is live_peak - fixed()
    std::int64_t transient_bytes = 0;
    std::vector<LiveSlots> slots;  // largest first
};

/// Walks the actions in issue order, as the measurement of the footprint does.
[[nodiscard]] PeakContents peak_contents(const Program& program, ClassIndex rank_class);

/// What one call of a body does to the memory of activations and transients.
struct BodyChange {
    std::int64_t net_bytes = 0;   // activations alive after it, less those before; negative where it frees
    std::int64_t peak_bytes = 0;  // most activations and transients alive within it, less the activations before it
};
/// Of Programs that differ in nothing but sizes.
class BodyChanges {
  public:
    [[nodiscard]] BodyChange of(const Program& program, const Segment& segment);

  private:
    std::map<StaysKey, SlotStays> stays_;
};

}  // namespace orrery::program
