#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "sim/network/algorithms/forwarding.h"
#include "sim/network/collectives.h"
#include "sim/network/nvlink_mesh.h"

namespace orrery::sim {
namespace {

using algorithms::Forwarding;
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

bool nic_is_up(const Cluster& cluster, std::int64_t node, std::int64_t rail) {
    const auto links = cluster.links_from(cluster.nic(node, rail));
    return std::any_of(links.begin(), links.end(), [](const topologies::Link& link) {
        return link.kind == topologies::LinkKind::nic && !link.failed;
    });
}

/// How many NICs the members of a node use, and how many members share the busiest one. Members whose NIC is down share
/// the others' NICs.
struct Rails {
    std::int64_t distinct = 0;
    std::int64_t most_members = 0;
};
Rails rails_of(const Cluster& cluster, Members members) {
    if (cluster.spec().nics_per_node == 0) return {};
    std::vector<std::int64_t> members_on(static_cast<std::size_t>(cluster.spec().nics_per_node));
    for (const std::int64_t member : members) ++members_on[static_cast<std::size_t>(cluster.rail_of(member))];
    Rails rails;
    std::int64_t without = 0;
    const bool all_up = cluster.spec().overrides.empty() || cluster.fabric().kind() == topologies::FabricKind::none;
    for (std::size_t rail = 0; rail < members_on.size(); ++rail) {
        if (members_on[rail] == 0) continue;
        if (!all_up && !nic_is_up(cluster, cluster.node_of(members[0]), static_cast<std::int64_t>(rail))) {
            without += members_on[rail];
            continue;
        }
        ++rails.distinct;
        rails.most_members = std::max(rails.most_members, members_on[rail]);
    }
    if (without == 0) return rails;
    rails.distinct = std::max<std::int64_t>(rails.distinct, 1);  // the NIC of another rail if all of theirs are down
    const auto all = static_cast<std::int64_t>(members.size());
    rails.most_members = std::max(rails.most_members, (all + rails.distinct - 1) / rails.distinct);
    return rails;
}

/// The pair of members over which the ring crosses from one node to the next: on a common rail if there is one.
std::pair<std::int64_t, std::int64_t> crossing(const Cluster& cluster, Members from, Members to) {
    for (const std::int64_t out : from) {
        const auto same = std::find_if(to.begin(), to.end(),
                                       [&](std::int64_t in) { return cluster.rail_of(in) == cluster.rail_of(out); });
        if (same != to.end()) return {out, *same};
    }
    return {from.back(), to.front()};
}

/// Pairs of one path class are equal, so that only the first pair of each class is examined.
class PathClasses {
  public:
    PathClasses(const Cluster& cluster, const Forwarding& forwarding) : cluster_(&cluster), forwarding_(&forwarding) {}
    /// Whether no pair of the class was asked about before, or the pair has no class.
    [[nodiscard]] bool is_new(std::int64_t a, std::int64_t b) {
        const int kind = forwarding_->as_routed(a, b) ? cluster_->path_class(a, b) : -1;
        if (kind < 0) return true;
        const auto bit = 1U << static_cast<unsigned>(kind);
        return (std::exchange(seen_, seen_ | bit) & bit) == 0;
    }

  private:
    const Cluster* cluster_;
    const Forwarding* forwarding_;
    unsigned seen_ = 0;  // bits of classes
};

/// Collects the slowest pairs of a placement.
class SlowestPairs {
  public:
    SlowestPairs(const Cluster& cluster, const Forwarding& forwarding)
        : cluster_(&cluster), forwarding_(&forwarding), classes_(cluster, forwarding) {}

    /// Call before adding the pairs of a node's members. In a mesh rings run side by side, so a device uses its links
    /// to all members, not only those to one neighbour. Without a mesh the bandwidth is that of the route.
    void enter(Members here) {
        const topologies::ClusterSpec& spec = cluster_->spec();
        if (spec.inside.nvlink_pairs.empty()) return;
        std::vector<std::int64_t> places;
        for (const std::int64_t member : here) places.push_back(member % spec.devices_per_node);
        if (spec.overrides.empty() && places == places_) return;
        mesh_ = mesh_ring_bandwidth(*cluster_, here);
        places_ = std::move(places);
    }

    void add(std::int64_t a, std::int64_t b, GroupPlacement& placement) {
        const Distance distance = cluster_->distance(a, b);
        placement.worst = std::max(placement.worst, distance);
        if (distance == Distance::same_device || !classes_.is_new(a, b)) return;
        Path path = cluster_->path(a, b, forwarding_->choice(a, b));
        const bool inside = distance == Distance::same_node;
        if (inside && mesh_.value() > 0) path.effective_bandwidth = mesh_;
        Picoseconds& latency = inside ? placement.intra_latency : placement.inter_latency;
        BytesPerSecond& bandwidth = inside ? placement.intra_bandwidth : placement.inter_bandwidth;
        latency = std::max(latency, path.latency);
        bandwidth = bandwidth.value() > 0 ? std::min(bandwidth, path.effective_bandwidth) : path.effective_bandwidth;
    }

  private:
    const Cluster* cluster_;
    const Forwarding* forwarding_;
    BytesPerSecond mesh_;  // bandwidth of the rings among the node's members; 0: no mesh, or no ring over NVLink
    std::vector<std::int64_t> places_;  // positions of these members in the node
    PathClasses classes_;
};

/// Rings of other channels cross on the other rails with the same load, and the links there may be slower.
void add_rails(const Cluster& cluster, Members from, Members to, SlowestPairs& pairs, GroupPlacement& placement) {
    for (const std::int64_t out : from) {
        for (const std::int64_t in : to) {
            if (cluster.rail_of(in) == cluster.rail_of(out)) pairs.add(out, in, placement);
        }
    }
}

/// Adds the pairs of consecutive members in the group's own order.
void add_neighbours(const Cluster& cluster, std::span<const std::int64_t> devices, const Forwarding& forwarding,
                    GroupPlacement& placement) {
    std::vector<std::pair<std::int64_t, std::int64_t>> leaving, entering;  // (node, rail) of each crossing
    PathClasses classes(cluster, forwarding);
    for (std::size_t i = 0; i < devices.size(); ++i) {
        const std::int64_t from = devices[i];
        const std::int64_t to = devices[(i + 1) % devices.size()];
        const Distance distance = cluster.distance(from, to);
        if (distance == Distance::same_device || distance == Distance::same_node) {
            placement.has_inner_neighbours = true;
            continue;
        }
        const std::int64_t node = cluster.node_of(from), rail = cluster.rail_of(to);
        const topologies::NicChoice choice = forwarding.choice(from, to);
        leaving.emplace_back(node, choice == topologies::NicChoice::pxn ? rail : cluster.rail_of(from));
        entering.emplace_back(cluster.node_of(to), rail);
        if (!classes.is_new(from, to)) continue;
        placement.neighbour_inter_latency =
            std::max(placement.neighbour_inter_latency, cluster.path(from, to, choice).latency);
    }
    for (auto* ends : {&leaving, &entering}) {
        std::sort(ends->begin(), ends->end());
        for (auto first = ends->begin(); first != ends->end();) {
            const auto last = std::upper_bound(first, ends->end(), *first);
            placement.neighbour_nic_sharers = std::max<std::int64_t>(placement.neighbour_nic_sharers, last - first);
            first = last;
        }
    }
}

}  // namespace

GroupPlacement place_group(const Cluster& cluster, std::span<const std::int64_t> devices) {
    ORRERY_CHECK(!devices.empty(), "a group without members");
    std::vector<std::int64_t> sorted(devices.begin(), devices.end());
    std::sort(sorted.begin(), sorted.end());
    ORRERY_CHECK(
        cluster.spec().ranks_may_share_devices() || std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(),
        "two ranks of a group share a device");
    const std::vector<Members> nodes = split_by_node(cluster, sorted);

    GroupPlacement placement;
    placement.ranks = static_cast<std::int64_t>(sorted.size());
    placement.nodes = static_cast<std::int64_t>(nodes.size());
    placement.min_members = placement.ranks;
    placement.min_nics = cluster.spec().nics_per_node;
    const std::int64_t per_node = cluster.spec().devices_per_node;
    const Forwarding forwarding(cluster, sorted);
    SlowestPairs pairs(cluster, forwarding);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        const Members here = nodes[i];
        const auto members = static_cast<std::int64_t>(here.size());
        placement.min_members = std::min(placement.min_members, members);
        placement.max_members = std::max(placement.max_members, members);
        for (const std::int64_t member : here.subspan(1)) {
            const topologies::NodePart part = cluster.node_layout().part_of(here.front() % per_node, member % per_node);
            placement.within = std::max(placement.within, part);
        }
        const Rails rails = rails_of(cluster, here);
        placement.min_nics = std::min(placement.min_nics, rails.distinct);
        placement.nic_sharers = std::max(placement.nic_sharers, rails.most_members);
        pairs.enter(here);
        for (std::size_t m = 1; m < here.size(); ++m) pairs.add(here[m - 1], here[m], placement);
        if (nodes.size() > 1) {
            const Members next = nodes[(i + 1) % nodes.size()];
            const auto [from, to] = crossing(cluster, here, next);
            pairs.add(from, to, placement);
            if (!cluster.spec().overrides.empty()) add_rails(cluster, here, next, pairs, placement);
        }
    }
    if (nodes.size() > 1) {
        placement.forwards = cluster.forwards_to_rails() && placement.min_nics > 1;
        add_neighbours(cluster, devices, forwarding, placement);
    } else {
        placement.has_inner_neighbours = true;
    }
    return placement;
}

std::size_t GroupPlacementHash::operator()(const GroupPlacement& p) const {
    std::uint64_t hash = 0;
    for (const std::int64_t part :
         {p.ranks, p.nodes, p.min_members, p.max_members, p.min_nics, static_cast<std::int64_t>(p.within),
          p.nic_sharers, static_cast<std::int64_t>(p.worst), p.intra_latency.value(), p.inter_latency.value(),
          std::bit_cast<std::int64_t>(p.intra_bandwidth.value()),
          std::bit_cast<std::int64_t>(p.inter_bandwidth.value()), p.neighbour_nic_sharers,
          p.neighbour_inter_latency.value(), static_cast<std::int64_t>(p.has_inner_neighbours),
          static_cast<std::int64_t>(p.forwards)}) {
        hash = mix64(hash ^ static_cast<std::uint64_t>(part));
    }
    return static_cast<std::size_t>(hash);
}

}  // namespace orrery::sim
