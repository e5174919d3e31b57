#include "reports/topology_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "topologies/bisection.h"

namespace orrery::reports {
namespace {

using topologies::Cluster;
using topologies::Link;
using topologies::LinkId;
using topologies::LinkKind;
using topologies::LinkProfile;
using topologies::VertexId;
using topologies::VertexKind;

constexpr std::int64_t kManyWays = std::int64_t{1} << 62;
constexpr double kPicosecondsPerMicrosecond = 1e6;

double gb_per_s(const Link& link) {
    return link.bandwidth.value() / kGigabyte;
}
double microseconds(Picoseconds time) {
    return static_cast<double>(time.value()) / kPicosecondsPerMicrosecond;
}

/// The profile from which a class of links takes its figures.
const LinkProfile& profile_of(const topologies::ClusterSpec& spec, LinkKind kind) {
    const LinkProfile none;
    const topologies::FabricShape& shape = spec.fabric_shape;
    const LinkProfile& trunk = shape.trunk == none ? spec.nic : shape.trunk;
    switch (kind) {
        case LinkKind::intra_node:
            return spec.intra_node;
        case LinkKind::host:
            return spec.host_link;
        case LinkKind::nic:
            return spec.nic;
        case LinkKind::trunk:
            return trunk;
        case LinkKind::core_trunk:
            return shape.core_trunk == none ? trunk : shape.core_trunk;
        case LinkKind::socket:
            return spec.inside.socket_link;
    }
    throw_bug(__FILE__, __LINE__, "kind", "unknown kind of link");
}

std::vector<VertexClass> vertex_classes(const Cluster& cluster) {
    std::map<VertexKind, std::int64_t> counts;
    for (VertexId id = 0; id < cluster.vertex_count(); ++id) ++counts[cluster.vertex(id).kind];
    std::vector<VertexClass> classes;
    for (const auto& [kind, count] : counts) classes.push_back({kind, count});
    return classes;
}

std::vector<LinkClass> link_classes(const Cluster& cluster) {
    using Key = std::tuple<LinkKind, double, double, std::int64_t>;  // fastest first
    std::map<Key, std::pair<std::int64_t, std::int64_t>> counts;     // links, failed ones
    for (LinkId id = 0; id < cluster.link_count(); ++id) {
        const Link& link = cluster.link(id);
        if (link.from > link.to) continue;  // the reverse direction has the same figures
        auto& [count, failed] = counts[{link.kind, -gb_per_s(link), link.efficiency, link.latency.value()}];
        ++count;
        failed += link.failed ? 1 : 0;
    }
    std::vector<LinkClass> classes;
    for (const auto& [key, count] : counts) {
        const auto& [kind, minus_gb_per_s, efficiency, latency_ps] = key;
        const LinkProfile& profile = profile_of(cluster.spec(), kind);
        classes.push_back({kind, -minus_gb_per_s, microseconds(Picoseconds(latency_ps)), efficiency, count.first,
                           count.second, profile.name, name_of(profile.bandwidth_gb_per_s_per_direction.kind)});
    }
    return classes;
}

/// Groups links in travel order into hops: all links that leave the vertices reached by the previous hop are one hop.
Way way_of(const Cluster& cluster, std::int64_t from, const std::vector<LinkId>& links) {
    Way way;
    std::set<VertexId> here{static_cast<VertexId>(from)};
    std::vector<LinkId> left = links;
    while (!left.empty()) {
        std::set<VertexId> there;
        std::vector<LinkId> later;
        Hop hop;
        hop.stripes = 0;
        for (const LinkId id : left) {
            const Link& link = cluster.link(id);
            if (here.count(link.from) == 0) {
                later.push_back(id);
                continue;
            }
            there.insert(link.to);
            if (hop.stripes++ == 0) {
                hop.from = cluster.graph().name(link.from);
                hop.to = cluster.graph().name(link.to);
                hop.kind = link.kind;
            }
            hop.gb_per_s_per_direction += gb_per_s(link);
            hop.latency_us = std::max(hop.latency_us, microseconds(link.latency));
        }
        ORRERY_CHECK(hop.stripes > 0, "a route's links do not follow each other");
        way.latency_us += hop.latency_us;
        way.gb_per_s_per_direction = way.hops.empty()
                                         ? hop.gb_per_s_per_direction
                                         : std::min(way.gb_per_s_per_direction, hop.gb_per_s_per_direction);
        way.hops.push_back(std::move(hop));
        here = std::move(there);
        left = std::move(later);
    }
    return way;
}

/// All shortest routes through the fabric between two NICs: sequences of links that each lead one hop closer.
class FabricWays {
  public:
    FabricWays(const Cluster& cluster, VertexId from, VertexId to) : cluster_(cluster), from_(from), to_(to) {
        std::vector<VertexId> queue{to_};
        distance_[to_] = 0;
        for (std::size_t at = 0; at < queue.size() && distance_.count(from_) == 0; ++at) {
            const VertexId here = queue[at];
            for (const Link& link : cluster_.links_from(here)) {
                // Every link has a reverse, so a link away from the target implies one towards it.
                if (link.failed || distance_.count(link.to) > 0 || !passes(link.to)) continue;
                distance_[link.to] = distance_[here] + 1;
                queue.push_back(link.to);
            }
        }
    }

    [[nodiscard]] std::int64_t count() {
        std::map<VertexId, std::int64_t> ways{{to_, 1}};
        return count_from(from_, ways);
    }

    /// At most `most` routes, as lists of links.
    [[nodiscard]] std::vector<std::vector<LinkId>> list(std::size_t most) {
        std::vector<std::vector<LinkId>> ways;
        std::vector<LinkId> links;
        list_from(from_, links, most, ways);
        return ways;
    }

  private:
    [[nodiscard]] bool passes(VertexId vertex) const {
        return vertex == from_ || is_fabric_switch(cluster_.vertex(vertex).kind);
    }
    template <typename Visit>
    void for_each_step(VertexId here, Visit visit) const {
        const auto near = distance_.find(here);
        if (near == distance_.end()) return;
        LinkId id = cluster_.first_link(here);
        for (const Link& link : cluster_.links_from(here)) {
            const auto next = distance_.find(link.to);
            if (!link.failed && next != distance_.end() && next->second + 1 == near->second) visit(id, link.to);
            ++id;
        }
    }
    std::int64_t count_from(VertexId here, std::map<VertexId, std::int64_t>& ways) const {
        if (const auto known = ways.find(here); known != ways.end()) return known->second;
        std::int64_t sum = 0;
        for_each_step(here, [&](LinkId, VertexId next) { sum = std::min(kManyWays, sum + count_from(next, ways)); });
        return ways[here] = sum;
    }
    void list_from(VertexId here, std::vector<LinkId>& links, std::size_t most,
                   std::vector<std::vector<LinkId>>& ways) const {
        if (here == to_) {
            ways.push_back(links);
            return;
        }
        for_each_step(here, [&](LinkId id, VertexId next) {
            if (ways.size() >= most) return;
            links.push_back(id);
            list_from(next, links, most, ways);
            links.pop_back();
        });
    }

    const Cluster& cluster_;
    VertexId from_, to_;
    std::map<VertexId, std::int64_t> distance_;  // to the target
};

void check_rank(const Cluster& cluster, std::int64_t rank) {
    if (rank >= 0 && rank < cluster.device_count()) return;
    throw InputError("--paths", "rank", std::to_string(rank),
                     "0 to " + std::to_string(cluster.device_count() - 1) + " (--gpus sets how many there are)");
}

Ways ways_between(const Cluster& cluster, std::int64_t a, std::int64_t b) {
    check_rank(cluster, a);
    check_rank(cluster, b);
    Ways ways;
    ways.from = a;
    ways.to = b;
    ways.distance = name_of(cluster.distance(a, b));
    const std::vector<LinkId> taken = cluster.path(a, b).links;
    ways.listed.push_back(way_of(cluster, a, taken));
    const auto is_nic = [&](VertexId vertex) { return cluster.vertex(vertex).kind == VertexKind::nic; };
    const auto out = std::find_if(taken.begin(), taken.end(), [&](LinkId id) { return is_nic(cluster.link(id).from); });
    const auto in = std::find_if(out, taken.end(), [&](LinkId id) { return is_nic(cluster.link(id).to); });
    if (out == taken.end() || in == taken.end()) return ways;
    ways.forwarded =
        cluster.rail_of(a) != cluster.rail_of(b) && cluster.vertex(cluster.link(*out).from).index == cluster.rail_of(b);
    FabricWays fabric(cluster, cluster.link(*out).from, cluster.link(*in).to);
    ways.equal = fabric.count();
    const std::vector<LinkId> through(out, in + 1);
    for (const std::vector<LinkId>& middle : fabric.list(kMostWays)) {
        if (middle == through || ways.listed.size() >= kMostWays) continue;
        std::vector<LinkId> links(taken.begin(), out);
        links.insert(links.end(), middle.begin(), middle.end());
        links.insert(links.end(), in + 1, taken.end());
        ways.listed.push_back(way_of(cluster, a, links));
    }
    return ways;
}

}  // namespace

TopologyReport report_topology(const Cluster& cluster, std::optional<std::pair<std::int64_t, std::int64_t>> ranks,
                               std::vector<std::string> notes) {
    const topologies::ClusterSpec& spec = cluster.spec();
    TopologyReport report;
    report.cluster = spec.name;
    report.source = spec.source;
    report.device = spec.device.name;
    report.fabric = name_of(spec.fabric);
    report.nodes = spec.nodes;
    report.devices_per_node = spec.devices_per_node;
    report.nics_per_node = spec.nics_per_node;
    report.vertices = vertex_classes(cluster);
    report.links = link_classes(cluster);
    if (spec.nodes > 1) report.bisection_gb_per_s = bisection_bandwidth(cluster).value() / kGigabyte;
    if (ranks) report.ways = ways_between(cluster, ranks->first, ranks->second);
    report.notes = std::move(notes);
    return report;
}

}  // namespace orrery::reports
