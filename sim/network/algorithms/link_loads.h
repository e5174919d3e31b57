// What a collective asks of each link: one flow with a coefficient for each link, instead of its transfers one by one.
//
// A collective has phases that follow each other. In each, a link carries `coefficient` bytes for each byte of the
// message size S, and the phase takes the latency of its steps and then the longest of
// coefficient * S / (bandwidth * efficiency). Algorithms whose steps use the same links alike (ring, chain, direct …)
// and streamed ones have one phase; halving_doubling and its like have one for each step, since their steps reach
// differently far. What explicit transfers carry over the links of their routes is exactly the sum of the phases.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/network/algorithms/algorithm.h"
#include "topologies/cluster.h"

namespace orrery::sim::algorithms {

struct LinkLoad {
    topologies::LinkId link = 0;
    double coefficient = 0;  // bytes through the link for each byte of S
};

struct LoadPhase {
    double steps = 0;
    /// Of the links, over all steps: on a ring the mean link's for each step, since a slice passes all of them in turn;
    /// else the longest route's, on trees those inside and between nodes apart.
    double latency_seconds = 0;
    /// The longest of coefficient / (bandwidth * efficiency), times what a pipeline of chunks takes to fill and drain.
    double seconds_per_byte = 0;
};

struct CollectiveLoads {
    std::vector<LoadPhase> phases;
    std::vector<LinkLoad> links;  // all phases together, ascending ids; of flows that run one after the other

    [[nodiscard]] double steps() const;
    [[nodiscard]] double latency_seconds() const;
    [[nodiscard]] double seconds_per_byte() const;
    /// On idle links. `step_seconds` is what a step takes besides the latency of the links.
    [[nodiscard]] double seconds(double bytes, double step_seconds = 0) const {
        return latency_seconds() + steps() * step_seconds + bytes * seconds_per_byte();
    }
};

/// Holds what the sums need, so that one call after the other on a cluster costs no more than the links it touches.
/// Not for concurrent use. Keeps a reference to the cluster.
class LinkLoads {
  public:
    explicit LinkLoads(const topologies::Cluster& cluster);

    /// Devices stand node by node, nodes ascending, without duplicates, but of an exchange, in which they stand in the
    /// group's order. The first is the root, or the sender. Of `direct` and `pairwise` among more than kAllPairs
    /// devices, routes between nodes are taken from a sample of shifts in which every device sends and receives once:
    /// exact for the links of devices and NICs, a mean with a spread of some percent for those of the fabric. Throws
    /// InputError for nvls where devices do not meet in node switches, and for collnet without a fabric; BugError where
    /// why_not names a reason.
    [[nodiscard]] CollectiveLoads of(Algorithm algorithm, program::CommKind kind, std::span<const std::int64_t> devices,
                                     std::int64_t chunks = 1);

    static constexpr std::int64_t kAllPairs = 512;

  private:
    const topologies::Cluster* cluster_;
    std::vector<double> phase_, total_;  // by link; zero between calls
};

/// For one group only.
[[nodiscard]] CollectiveLoads links_of(Algorithm algorithm, program::CommKind kind,
                                       std::span<const std::int64_t> devices, const topologies::Cluster& cluster,
                                       std::int64_t chunks = 1);

}  // namespace orrery::sim::algorithms
