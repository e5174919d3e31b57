// Time of a collective by an algorithm that the user names, whichever library would run it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "sim/network/algorithms/link_loads.h"

namespace orrery::sim::algorithms {

/// Times on idle links, from LinkLoads: latency + steps * step_seconds + bytes * seconds_per_byte. Keeps a reference to
/// the cluster.
class AlgorithmTimes {
  public:
    struct Time {
        double latency_seconds = 0;  // at S = 0
        double seconds = 0;
        std::int64_t chunks = 1;  // number of chunks: the fastest of 1, 2, 4 ... kMostChunks
    };
    static constexpr std::int64_t kMostChunks = 1024;

    /// `devices` in the order that LinkLoads requires. The group must be able to run the algorithm (why_not is empty).
    AlgorithmTimes(const topologies::Cluster& cluster, Algorithm algorithm, program::CommKind kind,
                   std::vector<std::int64_t> devices, double step_seconds);
    [[nodiscard]] Time of(std::int64_t bytes);

  private:
    [[nodiscard]] const CollectiveLoads& loads(std::int64_t chunks);

    LinkLoads link_loads_;
    Algorithm algorithm_;
    program::CommKind kind_;
    std::vector<std::int64_t> devices_;
    double step_seconds_;
    std::map<std::int64_t, CollectiveLoads> loads_;  // by number of chunks
};

}  // namespace orrery::sim::algorithms
