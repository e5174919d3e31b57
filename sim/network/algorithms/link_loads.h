// Load that a collective puts on each link: one flow with a coefficient per link, instead of its individual transfers.
//
// A collective is a sequence of phases. In each phase a link carries `coefficient` bytes for each byte of the message
// size S, and the phase takes the latency of its steps plus the maximum of coefficient * S / (bandwidth * efficiency).
// Algorithms whose steps all use the same links (ring, chain, direct …) and streamed ones have one phase. Algorithms
// whose steps reach different distances, such as halving_doubling, have one phase per step. The sum of the phases
// equals exactly the bytes that the explicit transfers carry over the links of their routes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/network/algorithms/algorithm.h"
#include "topologies/cluster.h"

namespace orrery::sim::algorithms {

/// The group on these devices (LinkLoads::of).
[[nodiscard]] Group group_on(const topologies::Cluster& cluster, program::CommKind kind,
                             std::span<const std::int64_t> devices);

struct LinkLoad {
    topologies::LinkId link = 0;
    double coefficient = 0;  // bytes over the link per byte of S
};

struct LoadPhase {
    double steps = 0;
    /// Latency of the links, summed over the steps. Each step of a ring counts the mean route, since every slice passes
    /// all of them in turn; other steps count the longest route, on trees separately inside and between nodes.
    double latency_seconds = 0;
    /// The maximum of coefficient / (bandwidth * efficiency), times the stretch by which a pipeline of chunks fills and
    /// drains.
    double seconds_per_byte = 0;
};

struct CollectiveLoads {
    std::vector<LoadPhase> phases;
    std::vector<LinkLoad> links;  // sums over all phases, by ascending id

    [[nodiscard]] double steps() const;
    [[nodiscard]] double latency_seconds() const;
    [[nodiscard]] double seconds_per_byte() const;
    /// Time on idle links. `step_seconds` is the overhead of a step in addition to the latency of the links.
    [[nodiscard]] double seconds(double bytes, double step_seconds = 0) const {
        return latency_seconds() + steps() * step_seconds + bytes * seconds_per_byte();
    }
};

/// Reuses its buffers, so that a call costs no more than the links it touches. Not for concurrent use. Keeps a
/// reference to the cluster.
class LinkLoads {
  public:
    explicit LinkLoads(const topologies::Cluster& cluster);

    /// `devices` are ordered by ascending node, without duplicates; those of an exchange, send or receive are in the
    /// group's order. The first is the root or the sender. For `direct` and `pairwise` among more than kAllPairs
    /// devices, routes between nodes are sampled by shifts in which every device sends and receives once: the result is
    /// exact for links of devices and NICs, and a mean with a spread of a few percent for links of the fabric. Throws
    /// InputError if two devices cannot reach each other or, for nvls, do not meet in node switches, and BugError if
    /// why_not gives a reason.
    [[nodiscard]] CollectiveLoads of(Algorithm algorithm, program::CommKind kind, std::span<const std::int64_t> devices,
                                     std::int64_t chunks = 1);

    static constexpr std::int64_t kAllPairs = 512;

  private:
    const topologies::Cluster* cluster_;
    std::vector<double> phase_, total_;  // by link; all zero between calls
};

/// The same for a single group.
[[nodiscard]] CollectiveLoads links_of(Algorithm algorithm, program::CommKind kind,
                                       std::span<const std::int64_t> devices, const topologies::Cluster& cluster,
                                       std::int64_t chunks = 1);

}  // namespace orrery::sim::algorithms
