// Limits on the numbers in a plan: far above any real training, and low enough that no product of sizes overflows.
#pragma once

#include "core/json_reader.h"

namespace orrery::program {

inline constexpr IntegerRange kDegreeLimits{1, 1 << 20};
inline constexpr IntegerRange kSequenceLimits{1, 1 << 24};
inline constexpr IntegerRange kBatchLimits{1, 1 << 20};  // sequences in a step or a micro-batch
inline constexpr IntegerRange kStageLayerLimits{0, 1 << 14};
/// Calls `visit(key, field, limits)` for each degree, in the order of a plan file. Readers, writers and check_plan use
/// this list.
template <typename Parallelism, typename Visit>
void visit_degrees(Parallelism& p, Visit&& visit) {
    visit("dp", p.dp, kDegreeLimits);
    visit("tp", p.tp, kDegreeLimits);
    visit("pp", p.pp, kDegreeLimits);
    visit("cp", p.cp, kDegreeLimits);
    visit("ep", p.ep, kDegreeLimits);
    visit("etp", p.etp, kDegreeLimits);
}

inline constexpr std::int64_t kLargestMicroBatchTokens = 1 << 27;

}  // namespace orrery::program
