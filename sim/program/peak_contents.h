// What lies in a rank's memory at the moment of MemoryFootprint::live_peak, beside what lives all the time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/program/program.h"

namespace orrery::program {

/// Slots of one name, over layers and micro-batches.
struct LiveSlots {
    std::string name;  // as the bodies have it; "hidden" and "hidden_gradient": what goes from layer to layer
    bool transient = false;
    std::int64_t count = 0;
    std::int64_t bytes = 0;
};

struct PeakContents {
    ActionIndex action = -1;            // MemoryFootprint::peak_action; -1: nothing but what lives all the time
    std::int32_t layer = 0;             // of the segment in which the peak is reached
    std::int64_t micro_batches = 0;     // (chunk, micro-batch) pairs with saved activations at that moment
    std::int64_t activation_bytes = 0;  // with transient_bytes: live_peak - fixed()
    std::int64_t transient_bytes = 0;
    std::vector<LiveSlots> slots;  // largest first
};

/// Walks the actions in issue order, as the footprint was measured.
[[nodiscard]] PeakContents peak_contents(const Program& program, ClassIndex rank_class);

}  // namespace orrery::program
