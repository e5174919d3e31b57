// Private to the planner: when the passes of a pipeline end, if nothing but their inputs and their rank delays them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "sim/program/schedule.h"

namespace orrery::sim {

/// In pipelines with more passes the walk takes too long for a bound; the ramp and the slowest rank are tight enough.
inline constexpr std::int64_t kMostWalkedPasses = 1 << 17;

struct PassCosts {
    std::vector<std::vector<std::size_t>> stages;  // by rank: the virtual stage of each of its chunks
    std::function<double(std::size_t rank, const program::ComputeTask& task)> seconds;
    /// From a rank to that of the next stage (forward) or of the one before; not called if both are the same rank.
    std::function<double(std::size_t rank, bool forward)> transfer_s;
};
struct PassEnds {
    double last_start_s = 0, end_s = 0;  // of a rank's last pass
};
/// Walks the graph of passes: each rank runs in its own order, each pass after the pass of the stage that feeds it. By
/// rank. Throws BugError for orders that deadlock.
[[nodiscard]] std::vector<PassEnds> walk_passes(const std::vector<std::vector<program::ComputeTask>>& orders,
                                                const PassCosts& costs);

}  // namespace orrery::sim
