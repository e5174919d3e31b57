#include "sim/network/algorithms/algorithm_times.h"

#include <utility>

namespace orrery::sim::algorithms {

AlgorithmTimes::AlgorithmTimes(const topologies::Cluster& cluster, Algorithm algorithm, program::CommKind kind,
                               std::vector<std::int64_t> devices, double step_seconds)
    : link_loads_(cluster),
      algorithm_(algorithm),
      kind_(kind),
      devices_(std::move(devices)),
      step_seconds_(step_seconds) {}

const CollectiveLoads& AlgorithmTimes::loads(std::int64_t chunks) {
    const auto known = loads_.find(chunks);
    if (known != loads_.end()) return known->second;
    CollectiveLoads found = link_loads_.of(algorithm_, kind_, devices_, chunks);
    found.links = {};  // needed only for sums over several groups
    return loads_.emplace(chunks, std::move(found)).first->second;
}

AlgorithmTimes::Time AlgorithmTimes::of(std::int64_t bytes) {
    const auto size = static_cast<double>(bytes);
    Time best{loads(1).seconds(0, step_seconds_), loads(1).seconds(size, step_seconds_), 1};
    // More chunks add steps and hide transfer time. Once doubling them does not pay, neither does doubling again.
    for (std::int64_t chunks = 2; row_of(algorithm_).manner.chunks && chunks <= kMostChunks; chunks *= 2) {
        const double seconds = loads(chunks).seconds(size, step_seconds_);
        if (seconds >= best.seconds) break;
        best = {loads(chunks).seconds(0, step_seconds_), seconds, chunks};
    }
    return best;
}

}  // namespace orrery::sim::algorithms
