#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "sim/network/collectives.h"

namespace orrery::sim {
namespace {

using topologies::Cluster;
using topologies::Distance;
using topologies::Path;

/// One node's members, ascending.
using Members = std::span<const std::int64_t>;

std::vector<Members> split_by_node(const Cluster& cluster, std::span<const std::int64_t> sorted) {
    std::vector<Members> nodes;
    for (std::size_t first = 0; first < sorted.size();) {
        std::size_t last = first + 1;
        while (last < sorted.size() && cluster.node_of(sorted[last]) == cluster.node_of(sorted[first])) ++last;
        nodes.push_back(sorted.subspan(first, last - first));
        first = last;
    }
    return nodes;
}

std::int64_t distinct_rails(const Cluster& cluster, Members members) {
    if (cluster.spec().nics_per_node == 0) return 0;
    std::int64_t count = 1;  // rails ascend with the devices of a node
    for (std::size_t i = 1; i < members.size(); ++i) {
        count += cluster.rail_of(members[i]) != cluster.rail_of(members[i - 1]) ? 1 : 0;
    }
    return count;
}

/// The pair over which the ring crosses from one node to the next: on a common rail if there is one.
std::pair<std::int64_t, std::int64_t> crossing(const Cluster& cluster, Members from, Members to) {
    for (std::size_t i = 0, j = 0; i < from.size() && j < to.size();) {
        const std::int64_t rail_i = cluster.rail_of(from[i]);
        const std::int64_t rail_j = cluster.rail_of(to[j]);
        if (rail_i == rail_j) return {from[i], to[j]};
        (rail_i < rail_j ? i : j) += 1;
    }
    return {from.back(), to.front()};
}

/// Nodes are equal and links of a kind are equal, so one pair of each distance stands for all.
class SlowestPairs {
  public:
    explicit SlowestPairs(const Cluster& cluster) : cluster_(&cluster) {}

    void add(std::int64_t a, std::int64_t b, GroupPlacement& placement) {
        const Distance distance = cluster_->distance(a, b);
        placement.worst = std::max(placement.worst, distance);
        const auto bit = 1U << static_cast<unsigned>(distance);
        if (distance == Distance::same_device || (seen_ & bit) != 0) return;
        seen_ |= bit;
        const Path path = cluster_->path(a, b);
        const bool inside = distance == Distance::same_node;
        Picoseconds& latency = inside ? placement.intra_latency : placement.inter_latency;
        BytesPerSecond& bandwidth = inside ? placement.intra_bandwidth : placement.inter_bandwidth;
        latency = std::max(latency, path.latency);
        bandwidth = bandwidth.value() > 0 ? std::min(bandwidth, path.effective_bandwidth) : path.effective_bandwidth;
    }

  private:
    const Cluster* cluster_;
    unsigned seen_ = 0;
};

}  // namespace

GroupPlacement place_group(const Cluster& cluster, std::span<const std::int64_t> devices) {
    ORRERY_CHECK(!devices.empty(), "a group without members");
    std::vector<std::int64_t> sorted(devices.begin(), devices.end());
    std::sort(sorted.begin(), sorted.end());
    ORRERY_CHECK(
        cluster.spec().ranks_may_share_devices() || std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(),
        "two ranks of a group on one device");
    const std::vector<Members> nodes = split_by_node(cluster, sorted);

    GroupPlacement placement;
    placement.ranks = static_cast<std::int64_t>(sorted.size());
    placement.nodes = static_cast<std::int64_t>(nodes.size());
    placement.min_members = placement.ranks;
    placement.min_nics = cluster.spec().nics_per_node;
    SlowestPairs pairs(cluster);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        const Members here = nodes[i];
        const auto members = static_cast<std::int64_t>(here.size());
        placement.min_members = std::min(placement.min_members, members);
        placement.max_members = std::max(placement.max_members, members);
        placement.min_nics = std::min(placement.min_nics, distinct_rails(cluster, here));
        for (std::size_t m = 1; m < here.size(); ++m) pairs.add(here[m - 1], here[m], placement);
        if (nodes.size() > 1) {
            const auto [from, to] = crossing(cluster, here, nodes[(i + 1) % nodes.size()]);
            pairs.add(from, to, placement);
        }
    }
    return placement;
}

std::size_t GroupPlacementHash::operator()(const GroupPlacement& p) const {
    std::uint64_t hash = 0;
    for (const std::int64_t part :
         {p.ranks, p.nodes, p.min_members, p.max_members, p.min_nics, static_cast<std::int64_t>(p.worst),
          p.intra_latency.value(), p.inter_latency.value(), std::bit_cast<std::int64_t>(p.intra_bandwidth.value()),
          std::bit_cast<std::int64_t>(p.inter_bandwidth.value())}) {
        hash = mix64(hash ^ static_cast<std::uint64_t>(part));
    }
    return static_cast<std::size_t>(hash);
}

}  // namespace orrery::sim
