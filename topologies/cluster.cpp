#include "topologies/cluster.h"

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace orrery::topologies {
namespace {

/// `stripes` links side by side carry the profile's bandwidth together.
Link link_like(LinkKind kind, const LinkProfile& profile, std::int64_t stripes) {
    Link link;
    link.kind = kind;
    link.bandwidth =
        BytesPerSecond(profile.bandwidth_gb_per_s_per_direction.value * kGigabyte / static_cast<double>(stripes));
    link.efficiency = profile.efficiency.value;
    link.latency = picoseconds_from_seconds(profile.latency_us.value * 1e-6);
    return link;
}

void connect(GraphBuilder& builder, VertexId a, VertexId b, Link link) {
    link.from = a;
    link.to = b;
    builder.connect(link);
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
    return (a + b - 1) / b;
}

}  // namespace

std::string name_of(Distance distance) {
    switch (distance) {
        case Distance::same_device:
            return "same device";
        case Distance::same_node:
            return "same node";
        case Distance::same_leaf:
            return "same leaf";
        case Distance::cross_leaf:
            return "cross leaf";
    }
    return "?";
}

Cluster::Layout Cluster::layout_of(const ClusterSpec& spec) {
    if (spec.nodes < 1 || spec.devices_per_node < 1) {
        throw InputError("cluster " + spec.name, "nodes * devices_per_node",
                         std::to_string(spec.nodes) + " * " + std::to_string(spec.devices_per_node), "at least 1 * 1");
    }
    const bool has_fabric = spec.nodes > 1;
    if (has_fabric && (spec.fabric == FabricKind::none || spec.nics_per_node < 1 || spec.nodes_per_scalable_unit < 1)) {
        throw InputError("cluster " + spec.name, "nodes", std::to_string(spec.nodes),
                         "1, or a fabric with nics_per_node and nodes_per_scalable_unit of at least 1");
    }
    Layout layout;
    layout.hubs_per_node = std::max<std::int64_t>(spec.node_switches, 1);
    if (has_fabric) {
        layout.units = ceil_div(spec.nodes, spec.nodes_per_scalable_unit);
        layout.spines = std::min(spec.nodes, spec.nodes_per_scalable_unit);
    }
    layout.first_hub = spec.device_count();
    layout.first_nic = layout.first_hub + spec.nodes * layout.hubs_per_node;
    layout.first_leaf = layout.first_nic + spec.nodes * spec.nics_per_node;
    layout.first_spine = layout.first_leaf + layout.units * spec.nics_per_node;
    layout.vertices = layout.first_spine + layout.spines;
    const std::int64_t links = 2 * (spec.device_count() * (layout.hubs_per_node + 1) + spec.nodes * spec.nics_per_node +
                                    layout.units * spec.nics_per_node * layout.spines);
    if (std::max(links, layout.vertices) > std::numeric_limits<LinkId>::max()) {
        throw InputError("cluster " + spec.name, "nodes", std::to_string(spec.nodes),
                         "so few that the graph has less than 2^31 links");
    }
    return layout;
}

Cluster::Cluster(ClusterSpec spec) : spec_(std::move(spec)), layout_(layout_of(spec_)), graph_(make_graph()) {}

Graph Cluster::make_graph() const {
    GraphBuilder builder("cluster " + spec_.name);
    make_vertices(builder);
    make_links(builder);
    return builder.freeze();
}

void Cluster::make_vertices(GraphBuilder& builder) const {
    const auto add = [&builder](VertexKind kind, std::int64_t groups, std::int64_t per_group) {
        for (std::int64_t group = 0; group < groups; ++group) {
            for (std::int64_t index = 0; index < per_group; ++index) {
                builder.add_vertex({kind, -1, static_cast<std::int32_t>(group), static_cast<std::int32_t>(index)});
            }
        }
    };
    add(VertexKind::device, spec_.nodes, spec_.devices_per_node);
    add(spec_.node_switches > 0 ? VertexKind::node_switch : VertexKind::host_memory, spec_.nodes,
        layout_.hubs_per_node);
    add(VertexKind::nic, spec_.nodes, spec_.nics_per_node);
    for (std::int64_t i = 0; i < layout_.units * spec_.nics_per_node; ++i) {
        builder.add_vertex({VertexKind::leaf, static_cast<std::int32_t>(i % spec_.nics_per_node),
                            static_cast<std::int32_t>(i / spec_.nics_per_node), static_cast<std::int32_t>(i)});
    }
    add(VertexKind::spine, layout_.spines > 0 ? 1 : 0, layout_.spines);
}

void Cluster::make_links(GraphBuilder& builder) const {
    const Link intra = link_like(LinkKind::intra_node, spec_.intra_node, layout_.hubs_per_node);
    for (std::int64_t device = 0; device < device_count(); ++device) {
        const auto vertex = static_cast<VertexId>(device);
        for (std::int64_t i = 0; i < layout_.hubs_per_node; ++i) {
            connect(builder, vertex, hub(node_of(device), i), intra);
        }
    }
    if (spec_.nics_per_node == 0) return;
    const Link host = link_like(LinkKind::host, spec_.host_link, 1);
    for (std::int64_t device = 0; device < device_count(); ++device) {
        connect(builder, static_cast<VertexId>(device), nic(node_of(device), rail_of(device)), host);
    }
    if (layout_.units == 0) return;
    const Link nic_link = link_like(LinkKind::nic, spec_.nic, 1);
    for (std::int64_t node = 0; node < spec_.nodes; ++node) {
        for (std::int64_t rail = 0; rail < spec_.nics_per_node; ++rail) {
            connect(builder, nic(node, rail), leaf(node / spec_.nodes_per_scalable_unit, rail), nic_link);
        }
    }
    const Link trunk = link_like(LinkKind::trunk, spec_.nic, 1);
    for (std::int64_t unit = 0; unit < layout_.units; ++unit) {
        for (std::int64_t rail = 0; rail < spec_.nics_per_node; ++rail) {
            for (std::int64_t i = 0; i < layout_.spines; ++i) connect(builder, leaf(unit, rail), spine(i), trunk);
        }
    }
}

void Cluster::check_device(std::int64_t device) const {
    ORRERY_CHECK(device >= 0 && device < device_count(),
                 "device " + std::to_string(device) + " of " + std::to_string(device_count()));
}

std::int64_t Cluster::node_of(std::int64_t device) const {
    check_device(device);
    return device / spec_.devices_per_node;
}

std::int64_t Cluster::scalable_unit_of(std::int64_t device) const {
    const std::int64_t node = node_of(device);
    return spec_.nodes_per_scalable_unit > 0 ? node / spec_.nodes_per_scalable_unit : 0;
}

std::int64_t Cluster::rail_of(std::int64_t device) const {
    check_device(device);
    if (spec_.nics_per_node == 0) return -1;
    return device % spec_.devices_per_node * spec_.nics_per_node / spec_.devices_per_node;
}

std::int64_t Cluster::device_of_rank(std::int64_t rank) const {
    if (rank >= 0 && spec_.ranks_may_share_devices()) return rank % device_count();
    check_device(rank);
    return rank;
}

Distance Cluster::distance(std::int64_t a, std::int64_t b) const {
    if (node_of(a) == node_of(b)) return a == b ? Distance::same_device : Distance::same_node;
    if (scalable_unit_of(a) == scalable_unit_of(b) && rail_of(a) == rail_of(b)) return Distance::same_leaf;
    return Distance::cross_leaf;
}

Path Cluster::path(std::int64_t a, std::int64_t b) const {
    const Distance far = distance(a, b);
    const auto from = static_cast<VertexId>(a);
    const auto to = static_cast<VertexId>(b);
    if (far == Distance::same_device) return path_through({from});
    if (far == Distance::same_node) {
        Path striped = path_through({from, hub(node_of(a), 0), to});
        for (std::int64_t i = 1; i < layout_.hubs_per_node; ++i) {
            const Path stripe = path_through({from, hub(node_of(a), i), to});
            striped.links.insert(striped.links.end(), stripe.links.begin(), stripe.links.end());
            striped.latency = std::max(striped.latency, stripe.latency);
            striped.bandwidth += stripe.bandwidth;
            striped.effective_bandwidth += stripe.effective_bandwidth;
        }
        return striped;
    }
    std::vector<VertexId> stops{from, nic(node_of(a), rail_of(a)), leaf(scalable_unit_of(a), rail_of(a))};
    if (far == Distance::cross_leaf) {
        stops.push_back(spine(node_of(a) % layout_.spines));
        stops.push_back(leaf(scalable_unit_of(b), rail_of(b)));
    }
    stops.push_back(nic(node_of(b), rail_of(b)));
    stops.push_back(to);
    return path_through(stops);
}

Path Cluster::path_through(const std::vector<VertexId>& stops) const {
    Path path;
    path.bandwidth = BytesPerSecond(std::numeric_limits<double>::infinity());
    path.effective_bandwidth = path.bandwidth;
    for (std::size_t i = 1; i < stops.size(); ++i) {
        const LinkId id = link_between(stops[i - 1], stops[i]);
        const Link& hop = link(id);
        path.links.push_back(id);
        path.latency += hop.latency;
        path.bandwidth = std::min(path.bandwidth, hop.bandwidth);
        path.effective_bandwidth = std::min(path.effective_bandwidth, hop.bandwidth * hop.efficiency);
    }
    path.hops = static_cast<std::int64_t>(path.links.size());
    return path;
}

LinkId Cluster::link_between(VertexId from, VertexId to) const {
    const std::optional<LinkId> found = graph_.link_between(from, to);
    ORRERY_CHECK(found, "no link from vertex " + std::to_string(from) + " to " + std::to_string(to));
    return *found;
}

VertexId Cluster::hub(std::int64_t node, std::int64_t index) const {
    return static_cast<VertexId>(layout_.first_hub + node * layout_.hubs_per_node + index);
}
VertexId Cluster::nic(std::int64_t node, std::int64_t rail) const {
    return static_cast<VertexId>(layout_.first_nic + node * spec_.nics_per_node + rail);
}
VertexId Cluster::leaf(std::int64_t unit, std::int64_t rail) const {
    return static_cast<VertexId>(layout_.first_leaf + unit * spec_.nics_per_node + rail);
}
VertexId Cluster::spine(std::int64_t index) const {
    return static_cast<VertexId>(layout_.first_spine + index);
}

}  // namespace orrery::topologies
