// Sums the bytes that one collective's transfers carry, by link and phase.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/error.h"
#include "sim/network/algorithms/forwarding.h"
#include "sim/network/algorithms/link_loads.h"

namespace orrery::sim::algorithms {

class LoadBuilder {
  public:
    /// `phase` and `total` are indexed by link and must be zero.
    LoadBuilder(const topologies::Cluster& cluster, const Group& group, std::span<const std::int64_t> devices,
                std::vector<double>& phase, std::vector<double>& total)
        : cluster_(cluster),
          group_(group),
          devices_(devices),
          forwarding_(cluster_, devices),
          phase_(phase),
          total_(total) {}

    /// Adds the algorithm's closed-form loads if it has them, else its transfers round by round.
    void build(Algorithm algorithm, program::CommKind kind, std::int64_t chunks);
    [[nodiscard]] CollectiveLoads finish();
    /// Leaves the sums at zero, also after an error.
    void clear();

    [[nodiscard]] const topologies::Cluster& cluster() const { return cluster_; }
    [[nodiscard]] const Group& group() const { return group_; }
    [[nodiscard]] std::int64_t device(std::int64_t rank) const { return devices_[static_cast<std::size_t>(rank)]; }
    /// Adds the whole route between two ranks.
    void send(std::int64_t from, std::int64_t to, double coefficient);
    void add_part(const topologies::Route::Part& part, double coefficient) {
        add(part.link, coefficient / part.stripes);
    }
    /// Records a route's latency, separately inside a node and between nodes.
    void note_latency(std::int64_t from, std::int64_t to, Picoseconds latency, double coefficient);
    void end_phase(double steps, double latency_seconds, double stretch = 1);
    /// Longest latency of the routes in this phase, in seconds.
    [[nodiscard]] double intra_latency() const { return intra_latency_; }
    [[nodiscard]] double inter_latency() const { return inter_latency_; }
    [[nodiscard]] double longest_latency() const { return std::max(intra_latency_, inter_latency_); }
    /// Sums over this phase's routes: latency times coefficient, and coefficients.
    [[nodiscard]] double weighted_latency() const { return weighted_latency_; }
    [[nodiscard]] double latency_weight() const { return latency_weight_; }

  private:
    void add(topologies::LinkId link, double coefficient);
    void add_by_rounds(Algorithm algorithm, program::CommKind kind);

    const topologies::Cluster& cluster_;
    const Group& group_;
    std::span<const std::int64_t> devices_;
    Forwarding forwarding_;
    topologies::Route route_;  // buffer for the current transfer
    std::vector<double>& phase_;
    std::vector<double>& total_;
    std::vector<topologies::LinkId> phase_links_, total_links_;
    double intra_latency_ = 0, inter_latency_ = 0;      // longest of this phase, seconds
    double weighted_latency_ = 0, latency_weight_ = 0;  // for the mean of this phase
    std::vector<LoadPhase> phases_;
};

}  // namespace orrery::sim::algorithms
