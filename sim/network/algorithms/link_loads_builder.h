// Sums what the transfers of one collective carry, link by link and phase by phase.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/error.h"
#include "sim/network/algorithms/link_loads.h"

namespace orrery::sim::algorithms {

/// The links of a route with the share of the traffic that each carries: stripes share it equally.
class Route {
  public:
    Route(const topologies::Cluster& cluster, std::int64_t from, std::int64_t to)
        : path_(cluster.path(from, to)), share_(1) {
        if (static_cast<std::int64_t>(path_.links.size()) == path_.hops) return;
        const auto start = static_cast<topologies::VertexId>(from);
        const auto stripes = std::count_if(path_.links.begin(), path_.links.end(),
                                           [&](topologies::LinkId link) { return cluster.link(link).from == start; });
        if (static_cast<std::int64_t>(path_.links.size()) == path_.hops * stripes) {
            share_ = 1 / static_cast<double>(stripes);
        } else {
            find_shares(cluster, start);
        }
    }
    [[nodiscard]] const topologies::Path& path() const { return path_; }
    [[nodiscard]] double share(std::size_t i) const { return shares_.empty() ? share_ : shares_[i]; }

  private:
    /// Where only a part of the way is striped: what arrives at a vertex leaves it in equal parts. Links stand in
    /// travel order, a stripe's links one after the other.
    void find_shares(const topologies::Cluster& cluster, topologies::VertexId start) {
        const std::size_t count = path_.links.size();
        shares_.assign(count, 0);
        for (std::int64_t hop = 0; hop < path_.hops; ++hop) {  // one more link of every stripe gets its share
            for (std::size_t i = 0; i < count; ++i) {
                const topologies::VertexId from = cluster.link(path_.links[i]).from;
                double arriving = from == start ? 1 : 0;
                double leaving = 0;
                for (std::size_t j = 0; j < count; ++j) {
                    if (cluster.link(path_.links[j]).to == from) arriving += shares_[j];
                    if (cluster.link(path_.links[j]).from == from) leaving += 1;
                }
                shares_[i] = arriving / leaving;
            }
        }
    }
    topologies::Path path_;
    double share_ = 1;
    std::vector<double> shares_;
};

class LinkLoads::Builder {
  public:
    Builder(LinkLoads& loads, const Group& group, std::span<const std::int64_t> devices)
        : cluster_(*loads.cluster_), group_(group), devices_(devices), phase_(loads.phase_), total_(loads.total_) {}

    void build(Algorithm algorithm, program::CommKind kind, std::int64_t chunks);
    [[nodiscard]] CollectiveLoads finish();
    /// Leaves the sums at zero, also after an error.
    void clear();

  private:
    [[nodiscard]] std::int64_t device(std::int64_t rank) const { return devices_[static_cast<std::size_t>(rank)]; }
    void add(topologies::LinkId link, double coefficient);
    /// All of the route between two ranks.
    void send(std::int64_t from, std::int64_t to, double coefficient);
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
    std::vector<double>& phase_;
    std::vector<double>& total_;
    std::vector<topologies::LinkId> phase_links_, total_links_;
    double intra_latency_ = 0, inter_latency_ = 0;      // the longest of this phase, seconds
    double weighted_latency_ = 0, latency_weight_ = 0;  // for the mean of this phase
    std::vector<LoadPhase> phases_;
};

}  // namespace orrery::sim::algorithms
