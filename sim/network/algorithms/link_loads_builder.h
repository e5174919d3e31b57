// Sums what the transfers of one collective carry, link by link and phase by phase.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/error.h"
#include "sim/network/algorithms/link_loads.h"
#include "sim/network/forwarding.h"

namespace orrery::sim::algorithms {

class LinkLoads::Builder {
  public:
    Builder(LinkLoads& loads, const Group& group, std::span<const std::int64_t> devices)
        : cluster_(*loads.cluster_),
          group_(group),
          devices_(devices),
          forwarding_(cluster_, devices),
          phase_(loads.phase_),
          total_(loads.total_) {}

    void build(Algorithm algorithm, program::CommKind kind, std::int64_t chunks);
    [[nodiscard]] CollectiveLoads finish();
    /// Leaves the sums at zero, also after an error.
    void clear();

  private:
    [[nodiscard]] std::int64_t device(std::int64_t rank) const { return devices_[static_cast<std::size_t>(rank)]; }
    void add(topologies::LinkId link, double coefficient);
    /// All of the route between two ranks.
    void send(std::int64_t from, std::int64_t to, double coefficient);
    void add_part(const topologies::Route::Part& part, double coefficient) {
        add(part.link, coefficient / part.stripes);
    }
    /// Inside a node or between two: the latencies of trees are told apart.
    void note_latency(std::int64_t from, std::int64_t to, Picoseconds latency, double coefficient);
    void end_phase(double steps, double latency_seconds, double stretch = 1);
    [[nodiscard]] double longest_latency() const { return std::max(intra_latency_, inter_latency_); }

    void add_ring(program::CommKind kind);
    void add_ring_channels(double coefficient);
    void add_neighbor_exchange();
    void add_chain(program::CommKind kind, std::int64_t chunks);
    void add_binary_tree(program::CommKind kind, std::int64_t chunks);
    void add_double_tree(program::CommKind kind);
    void add_chains(std::int64_t channels, double up, double down);
    void add_node_trees(std::int64_t rails, bool has_root, double up, double down);
    void add_shifts(Algorithm algorithm, program::CommKind kind, std::int64_t chunks);
    void add_hierarchical(program::CommKind kind);
    void add_rail_rings(double coefficient);
    void add_direct(program::CommKind kind);
    void add_all_pairs(double steps);
    void add_sampled_pairs();
    void add_nvls(program::CommKind kind);
    void add_collnet();
    void add_network_tree(std::int64_t rail, double coefficient);
    void add_by_rounds(Algorithm algorithm, program::CommKind kind);

    const topologies::Cluster& cluster_;
    const Group& group_;
    std::span<const std::int64_t> devices_;
    Forwarding forwarding_;
    topologies::Route route_, way_back_;  // of the transfer at hand
    std::vector<double>& phase_;
    std::vector<double>& total_;
    std::vector<topologies::LinkId> phase_links_, total_links_;
    double intra_latency_ = 0, inter_latency_ = 0;      // the longest of this phase, seconds
    double weighted_latency_ = 0, latency_weight_ = 0;  // for the mean of this phase
    std::vector<LoadPhase> phases_;
};

}  // namespace orrery::sim::algorithms
