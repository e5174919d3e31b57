// Within what the numbers of a plan lie: far above any training, and low enough that no product of sizes overflows.
#pragma once

#include "core/json_reader.h"

namespace orrery::program {

inline constexpr IntegerRange kDegreeLimits{1, 1 << 20};
inline constexpr IntegerRange kSequenceLimits{1, 1 << 24};
inline constexpr IntegerRange kBatchLimits{1, 1 << 20};  // samples, of a step or a micro-batch
inline constexpr IntegerRange kStageLayerLimits{0, 1 << 14};
inline constexpr std::int64_t kLargestMicroBatchTokens = 1 << 27;

}  // namespace orrery::program
