// Routes between the devices of a cluster.
#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/random.h"
#include "topologies/cluster.h"

namespace orrery::topologies {

const NodeRoutes& Cluster::routes_in(std::int64_t node) const {
    if (odd_nodes_.empty()) return *node_routes_;
    const auto odd = odd_nodes_.find(node);
    return odd == odd_nodes_.end() ? *node_routes_ : odd->second;
}

bool Cluster::nic_is_up(std::int64_t node, std::int64_t rail) const {
    return nic_down_.empty() || !nic_down_[static_cast<std::size_t>(node * node_.nics() + rail)];
}

/// Appends links to a Route.
class Cluster::RouteBuilder {
  public:
    RouteBuilder(const Cluster& cluster, Route& route) : cluster_(cluster), route_(route) {
        route_.parts.clear();
        route_.hops = 0;
        route_.latency = Picoseconds();
    }

    void add_inside(std::int64_t node, std::int64_t from, std::int64_t to) {
        const NodeRoutes& routes = cluster_.routes_in(node);
        const NodeLayout& layout = cluster_.node_;
        while (from != to) {
            const std::int64_t next = routes.next(from, to);
            ORRERY_CHECK(next >= 0, "no way inside node " + std::to_string(node));
            if (layout.hub_kind() == VertexKind::node_switch && next >= layout.first_hub() &&
                next < layout.first_pcie_switch()) {
                const std::int64_t after = routes.next(next, to);
                add_stripes(node, from, after);
                from = after;
            } else {
                add(cluster_.link_in(node, from, next));
                from = next;
            }
        }
    }

    void add(LinkId id) {
        route_.parts.push_back({id, 1});
        ++route_.hops;
        route_.latency += cluster_.graph_->link(id).latency;
    }

  private:
    /// Adds the links over every node switch to which both ends have a working link.
    void add_stripes(std::int64_t node, std::int64_t from, std::int64_t to) {
        const Graph& graph = *cluster_.graph_;
        const bool intact = cluster_.odd_nodes_.empty();
        const std::size_t before = route_.parts.size();
        for (std::int64_t hub = 0; hub < cluster_.node_.hubs(); ++hub) {
            const std::int64_t through = cluster_.node_.first_hub() + hub;
            const LinkId up = cluster_.link_in(node, from, through), down = cluster_.link_in(node, through, to);
            if (!intact && (graph.link(up).failed || graph.link(down).failed)) continue;
            route_.parts.push_back({up, 1});
            route_.parts.push_back({down, 1});
        }
        const std::size_t stripes = (route_.parts.size() - before) / 2;
        ORRERY_CHECK(stripes > 0, "no working switch inside node " + std::to_string(node));
        for (std::size_t i = before; i < route_.parts.size(); ++i) {
            route_.parts[i].stripes = static_cast<std::int32_t>(stripes);
        }
        // All NVLinks of a cluster have one latency.
        route_.hops += 2;
        route_.latency += graph.link(route_.parts[before].link).latency;
        route_.latency += graph.link(route_.parts[before + 1].link).latency;
    }

    const Cluster& cluster_;
    Route& route_;
};

std::int64_t Cluster::way_through(std::int64_t a, std::int64_t b, Nics nics) const {
    const std::int64_t node_a = node_of(a), node_b = node_of(b);
    const std::int64_t local_a = a % node_.devices(), local_b = b % node_.devices();
    const NodeRoutes &out = routes_in(node_a), &in = routes_in(node_b);
    const std::int64_t nic_a = local_nic(nics.out), nic_b = local_nic(nics.in);
    if (!nic_is_up(node_a, nics.out) || !nic_is_up(node_b, nics.in) || !out.reaches(local_a, nic_a) ||
        !in.reaches(nic_b, local_b)) {
        return -1;
    }
    const std::int64_t between =
        routes_->distance(fabric_.edge_switch(node_a, nics.out), fabric_.edge_switch(node_b, nics.in));
    return between < 0 ? -1 : out.cost(local_a, nic_a) + 3 * between + in.cost(nic_b, local_b);
}

Cluster::Nics Cluster::nics_between(std::int64_t a, std::int64_t b, NicChoice choice) const {
    const std::int64_t rail_a = rail_of(a), rail_b = rail_of(b), nics = node_.nics();
    const bool has_switches = node_.hub_kind() == VertexKind::node_switch;
    const Nics wanted{choice == NicChoice::pxn && has_switches ? rail_b : rail_a, rail_b};
    if (way_through(a, b, wanted) >= 0) return wanted;
    Nics best;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (std::int64_t i = 0; i < nics; ++i) {
        for (std::int64_t j = 0; j < nics; ++j) {
            const Nics through{(rail_b + j) % nics, (rail_b + i) % nics};
            const std::int64_t way = way_through(a, b, through);
            if (way < 0 || way >= least) continue;
            least = way;
            best = through;
        }
    }
    if (best.out >= 0) return best;
    throw InputError("cluster " + spec_.name + ": device " + std::to_string(a) + " (" +
                     graph_->name(static_cast<VertexId>(a)) + ") cannot reach device " + std::to_string(b) + " (" +
                     graph_->name(static_cast<VertexId>(b)) +
                     "): every way between them has a failed link or needs one that the fabric lacks");
}

std::uint64_t Cluster::route_choice(std::int64_t a, std::int64_t b, Nics nics) const {
    // In rail fabrics a leaf has one NIC of each node; in others it may have all of a node's NICs.
    const bool rails = fabric_.clos().leaves_per_unit > 1;
    const auto number = [&](std::int64_t device, std::int64_t rail) {
        const std::int64_t node = node_of(device);
        return static_cast<std::uint64_t>(rails ? node : node * node_.nics() + rail);
    };
    switch (spec_.routing.spread) {
        case Spread::source:
            return number(a, nics.out);
        case Spread::destination:
            return number(b, nics.in);
        case Spread::hash:
            break;
    }
    return mix64(mix64(static_cast<std::uint64_t>(nic(node_of(a), nics.out))) ^
                 static_cast<std::uint64_t>(nic(node_of(b), nics.in)));
}

void Cluster::find_route(std::int64_t a, std::int64_t b, NicChoice choice, Route& route) const {
    const std::int64_t node_a = node_of(a), node_b = node_of(b);
    RouteBuilder builder(*this, route);
    const std::int64_t local_a = a % node_.devices(), local_b = b % node_.devices();
    if (node_a == node_b && routes_in(node_a).reaches(local_a, local_b)) {
        builder.add_inside(node_a, local_a, local_b);
        route.nic_up = route.nic_down = route.parts.size();
        return;
    }
    if (fabric_.kind() == FabricKind::none) {
        throw InputError("cluster " + spec_.name + ": device " + std::to_string(a) + " cannot reach device " +
                         std::to_string(b) + " of the same node: no working link leads from one to the other");
    }
    const Nics nics = nics_between(a, b, choice);
    builder.add_inside(node_a, local_a, local_nic(nics.out));
    route.nic_up = route.parts.size();
    builder.add(links_of_nic(node_a, nics.out).up);
    routes_->for_each_link(fabric_.edge_switch(node_a, nics.out), fabric_.edge_switch(node_b, nics.in),
                           route_choice(a, b, nics), [&builder](LinkId link) { builder.add(link); });
    route.nic_down = route.parts.size();
    builder.add(links_of_nic(node_b, nics.in).down);
    builder.add_inside(node_b, local_nic(nics.in), local_b);
}

Path Cluster::path(std::int64_t a, std::int64_t b, NicChoice choice) const {
    Route route;
    find_route(a, b, choice, route);
    Path path;
    path.hops = route.hops;
    path.latency = route.latency;
    path.bandwidth = BytesPerSecond(std::numeric_limits<double>::infinity());
    path.effective_bandwidth = path.bandwidth;
    path.links.reserve(route.parts.size());
    for (std::size_t i = 0; i < route.parts.size();) {
        // Stripes are consecutive, each a link to a node switch and a link from it.
        const std::int32_t stripes = route.parts[i].stripes;
        const std::size_t in_a_row = stripes > 1 ? 2 : 1;
        BytesPerSecond bandwidth, effective;
        for (std::int32_t stripe = 0; stripe < stripes; ++stripe) {
            BytesPerSecond narrowest(std::numeric_limits<double>::infinity()), reached = narrowest;
            for (std::size_t j = 0; j < in_a_row; ++j, ++i) {
                const Link& link = graph_->link(route.parts[i].link);
                path.links.push_back(route.parts[i].link);
                narrowest = std::min(narrowest, link.bandwidth);
                reached = std::min(reached, link.bandwidth * link.efficiency);
            }
            bandwidth += narrowest;
            effective += reached;
        }
        path.bandwidth = std::min(path.bandwidth, bandwidth);
        path.effective_bandwidth = std::min(path.effective_bandwidth, effective);
    }
    return path;
}

}  // namespace orrery::topologies
