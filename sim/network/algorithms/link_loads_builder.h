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
                program::CommKind kind, std::int64_t chunks, std::vector<double>& phase, std::vector<double>& total)
        : cluster_(cluster),
          group_(group),
          devices_(devices),
          kind_(kind),
          chunks_(chunks),
          forwarding_(cluster_, devices),
          phase_(phase),
          total_(total) {}

    /// Adds the algorithm's closed-form loads if it has them, else its transfers round by round.
    void build(Algorithm algorithm);
    [[nodiscard]] CollectiveLoads finish();
    /// Leaves the sums at zero, also after an error.
    void clear();

    [[nodiscard]] const topologies::Cluster& cluster() const { return cluster_; }
    [[nodiscard]] const Group& group() const { return group_; }
    [[nodiscard]] program::CommKind kind() const { return kind_; }
    [[nodiscard]] std::int64_t chunks() const { return chunks_; }
    /// How often the message passes the group: an all-reduce reduces and gathers.
    [[nodiscard]] double passes() const { return kind_ == program::CommKind::all_reduce ? 2 : 1; }
    [[nodiscard]] std::int64_t device(std::int64_t rank) const { return devices_[static_cast<std::size_t>(rank)]; }
    /// Adds the whole route between two ranks.
    void send(std::int64_t from, std::int64_t to, double coefficient);
    void add_part(const topologies::Route::Part& part, double coefficient) {
        add(part.link, coefficient / part.stripes);
    }
    /// Records a route's latency, separately inside a node and between nodes.
    void note_latency(std::int64_t from, std::int64_t to, Picoseconds latency, double coefficient);
    void end_phase(double steps, double latency_seconds, double stretch = 1);
    /// The same for steps that each take the latency of the longest route, or the mean of the phase's routes.
    void end_steps(double steps) { end_phase(steps, steps * longest_latency()); }
    void end_mean_steps(double steps) { end_phase(steps, steps * weighted_latency_ / latency_weight_); }
    /// Longest latency of the routes in this phase, in seconds.
    [[nodiscard]] double intra_latency() const { return intra_latency_; }
    [[nodiscard]] double inter_latency() const { return inter_latency_; }
    [[nodiscard]] double longest_latency() const { return std::max(intra_latency_, inter_latency_); }
    /// Sum over this phase's routes of latency times coefficient.
    [[nodiscard]] double weighted_latency() const { return weighted_latency_; }

  private:
    void add(topologies::LinkId link, double coefficient);
    void add_by_rounds(Algorithm algorithm);

    const topologies::Cluster& cluster_;
    const Group& group_;
    std::span<const std::int64_t> devices_;
    program::CommKind kind_;
    std::int64_t chunks_;
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
