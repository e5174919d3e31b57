#include "topologies/cluster.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>

#include "core/enum_names.h"
#include "core/error.h"

namespace orrery::topologies {
namespace {

constexpr VertexKind kNodeKinds[] = {VertexKind::device,      VertexKind::node_switch, VertexKind::host_memory,
                                     VertexKind::pcie_switch, VertexKind::cpu,         VertexKind::nic};

std::int32_t narrow(std::int64_t value) {
    return static_cast<std::int32_t>(value);
}

/// Removes "WORD NUMBER" from the front of the text and returns the number; nothing if the text begins otherwise.
std::optional<std::int64_t> take_numbered(std::string& text, const std::string& word) {
    if (!text.starts_with(word + " ")) return std::nullopt;
    std::int64_t number = -1;
    const char* const begin = text.data() + word.size() + 1;
    const auto [end, error] = std::from_chars(begin, text.data() + text.size(), number);
    if (error != std::errc() || number < 0) return std::nullopt;
    text.erase(0, static_cast<std::size_t>(end - text.data()));
    return number;
}

}  // namespace

std::string name_of(Distance distance) {
    static constexpr auto kNames =
        name_table<Distance::cross_pod>({"same device", "same node", "same leaf", "cross leaf", "cross pod"});
    return std::string(kNames[distance]);
}

namespace {

const ClusterSpec& checked(const ClusterSpec& spec) {
    if (spec.nodes >= 1 && spec.devices_per_node >= 1) return spec;
    throw InputError("cluster " + spec.name, "nodes * devices_per_node",
                     std::to_string(spec.nodes) + " * " + std::to_string(spec.devices_per_node), "at least 1 * 1");
}

}  // namespace

Cluster::Cluster(ClusterSpec spec) : spec_(std::move(spec)), node_(checked(spec_)), fabric_(spec_) {
    check_size();
    number_insides();
    graph_ = std::make_shared<const Graph>(make_graph());
    find_nic_links();
    routes_ = std::make_shared<const FabricRoutes>(*graph_, fabric_, fabric_switch(0));
    node_routes_ = std::make_shared<const NodeRoutes>(node_, [](std::int64_t, std::int64_t) { return false; });
}

void Cluster::check_size() const {
    const auto cables = static_cast<std::int64_t>(node_.cables().size()) + node_.nics();
    if (spec_.nodes > kMostDevices / spec_.devices_per_node) {
        throw InputError("cluster " + spec_.name, "nodes", std::to_string(spec_.nodes),
                         "at most " + std::to_string(kMostDevices / spec_.devices_per_node) + ", for at most " +
                             std::to_string(kMostDevices) + " devices");
    }
    const std::int64_t most = std::numeric_limits<LinkId>::max() / 4;  // before any product below can overflow
    const bool fits = spec_.nodes <= most && cables <= most / spec_.nodes && node_.vertices() <= most / spec_.nodes &&
                      fabric_.switch_count() <= most && fabric_.trunk_count() <= most;
    if (fits) return;
    throw InputError("cluster " + spec_.name, "nodes", std::to_string(spec_.nodes),
                     "fewer nodes, so that the graph has less than 2^31 links");
}

Graph Cluster::make_graph() {
    GraphBuilder builder("cluster " + spec_.name);
    LinkOverrides overrides(spec_, [this](const std::string& name) { return vertex_named(name); });
    make_vertices(builder);
    make_links(builder, overrides);
    overrides.check_all_used();
    return builder.freeze();
}

void Cluster::make_vertices(GraphBuilder& builder) const {
    const auto add = [&](VertexKind kind, std::int64_t per_node) {
        for (std::int64_t node = 0; node < spec_.nodes; ++node) {
            for (std::int64_t i = 0; i < per_node; ++i) builder.add_vertex({kind, -1, narrow(node), narrow(i)});
        }
    };
    add(VertexKind::device, node_.devices());
    add(node_.hub_kind(), node_.hubs());
    add(VertexKind::pcie_switch, node_.pcie_switches());
    add(VertexKind::cpu, node_.cpus());
    add(VertexKind::nic, node_.nics());
    for (std::int64_t i = 0; i < fabric_.switch_count(); ++i) builder.add_vertex(fabric_.vertex(i));
}

void Cluster::make_links(GraphBuilder& builder, LinkOverrides& overrides) {
    const auto connect = [&](VertexId a, VertexId b, Link link) {
        link.from = a;
        link.to = b;
        if (!overrides.empty()) overrides.apply(link, builder.vertex(a), builder.vertex(b));
        builder.connect(link);
        return !link.failed;
    };
    for (std::int64_t node = 0; node < spec_.nodes; ++node) {
        std::set<std::pair<std::int64_t, std::int64_t>> failed;
        for (const NodeLayout::Cable& cable : node_.cables()) {
            if (!connect(vertex_of(node, cable.a), vertex_of(node, cable.b), cable.link)) {
                failed.insert({cable.a, cable.b});
            }
        }
        if (failed.empty()) continue;
        odd_nodes_.emplace(node, NodeRoutes(node_, [&failed](std::int64_t a, std::int64_t b) {
                               return failed.contains({a, b});
                           }));
    }
    if (fabric_.kind() == FabricKind::none) return;
    const Link nic_link = link_like(LinkKind::nic, spec_.nic);
    for (std::int64_t node = 0; node < spec_.nodes; ++node) {
        for (std::int64_t rail = 0; rail < node_.nics(); ++rail) {
            if (connect(nic(node, rail), fabric_switch(fabric_.edge_switch(node, rail)), nic_link)) continue;
            nic_down_.resize(static_cast<std::size_t>(spec_.nodes * node_.nics()));
            nic_down_[static_cast<std::size_t>(node * node_.nics() + rail)] = true;
        }
    }
    const FabricShape& shape = spec_.fabric_shape;
    const LinkProfile& near = shape.trunk == LinkProfile{} ? spec_.nic : shape.trunk;
    const Link trunk = link_like(LinkKind::trunk, near);
    const Link core_trunk =
        link_like(LinkKind::core_trunk, shape.core_trunk == LinkProfile{} ? near : shape.core_trunk);
    fabric_.for_each_trunk([&](std::int64_t a, std::int64_t b, LinkKind kind, std::int64_t cables) {
        Link link = kind == LinkKind::trunk ? trunk : core_trunk;
        link.bandwidth = link.bandwidth * static_cast<double>(cables);
        connect(fabric_switch(a), fabric_switch(b), link);
    });
}

/// Every route between nodes uses two NIC links; finding them in advance keeps searches out of path().
void Cluster::find_nic_links() {
    if (fabric_.kind() == FabricKind::none) return;
    nic_links_.reserve(static_cast<std::size_t>(spec_.nodes * node_.nics()));
    for (std::int64_t node = 0; node < spec_.nodes; ++node) {
        for (std::int64_t rail = 0; rail < node_.nics(); ++rail) {
            const VertexId end = nic(node, rail), edge = fabric_switch(fabric_.edge_switch(node, rail));
            const std::optional<LinkId> up = graph_->link_between(end, edge), down = graph_->link_between(edge, end);
            ORRERY_CHECK(up && down, "NIC " + graph_->name(end) + " is connected to no switch");
            nic_links_.push_back({*up, *down});
        }
    }
}

/// Vertices are ordered by kind, then node, and a vertex's outgoing links by the vertex they reach. A link inside a
/// node therefore has the same position among its tail's links in every node.
void Cluster::number_insides() {
    std::int64_t first = 0;
    const auto add_block = [&](std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) inside_.push_back({narrow(first + i), narrow(count)});
        first += spec_.nodes * count;
    };
    for (const std::int64_t count :
         {node_.devices(), node_.hubs(), node_.pcie_switches(), node_.cpus(), node_.nics()}) {
        add_block(count);
    }
    const auto vertices = static_cast<std::size_t>(node_.vertices());
    std::vector<std::vector<std::int64_t>> heads(vertices);
    for (const NodeLayout::Cable& cable : node_.cables()) {
        heads[static_cast<std::size_t>(cable.a)].push_back(cable.b);
        heads[static_cast<std::size_t>(cable.b)].push_back(cable.a);
    }
    link_place_.assign(vertices * vertices, -1);
    for (std::size_t from = 0; from < vertices; ++from) {
        std::sort(heads[from].begin(), heads[from].end());
        for (std::size_t i = 0; i < heads[from].size(); ++i) {
            link_place_[from * vertices + static_cast<std::size_t>(heads[from][i])] =
                narrow(static_cast<std::int64_t>(i));
        }
    }
}

VertexId Cluster::nic(std::int64_t node, std::int64_t rail) const {
    return vertex_of(node, local_nic(rail));
}

VertexId Cluster::fabric_switch(std::int64_t number) const {
    return narrow(spec_.nodes * node_.vertices() + number);
}

std::optional<VertexId> Cluster::vertex_named(const std::string& name) const {
    std::string rest = name;
    if (const std::optional<std::int64_t> node = take_numbered(rest, "node")) {
        if (*node >= spec_.nodes || !rest.starts_with(" ")) return std::nullopt;
        rest.erase(0, 1);
        const std::int64_t counts[] = {node_.devices(),
                                       node_.hub_kind() == VertexKind::node_switch ? node_.hubs() : 0,
                                       node_.hub_kind() == VertexKind::host_memory ? node_.hubs() : 0,
                                       node_.pcie_switches(),
                                       node_.cpus(),
                                       node_.nics()};
        std::int64_t first = 0;
        for (std::size_t i = 0; i < std::size(kNodeKinds); ++i) {
            std::string word = rest;
            const std::optional<std::int64_t> index = take_numbered(word, name_of(kNodeKinds[i]));
            if (index && word.empty()) {
                return *index < counts[i] ? std::optional(vertex_of(*node, first + *index)) : std::nullopt;
            }
            first += counts[i];
        }
        return std::nullopt;
    }
    std::int64_t first = 0;
    for (const auto& [kind, count] : {std::pair{VertexKind::leaf, fabric_.leaves()},
                                      {VertexKind::spine, fabric_.spines()},
                                      {VertexKind::core, fabric_.cores()},
                                      {VertexKind::router, fabric_.routers()}}) {
        std::string word = name;
        const std::optional<std::int64_t> index = take_numbered(word, name_of(kind));
        if (index && word.empty()) return *index < count ? std::optional(fabric_switch(first + *index)) : std::nullopt;
        first += count;
    }
    return std::nullopt;
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
    return fabric_.kind() == FabricKind::none ? 0 : fabric_.unit_of(node);
}

std::int64_t Cluster::pod_of(std::int64_t device) const {
    const std::int64_t node = node_of(device);
    return fabric_.kind() == FabricKind::none ? 0 : fabric_.pod_of(node);
}

std::int64_t Cluster::rail_of(std::int64_t device) const {
    check_device(device);
    return node_.rail_of(device % spec_.devices_per_node);
}

std::int64_t Cluster::device_of_rank(std::int64_t rank) const {
    if (rank >= 0 && spec_.ranks_may_share_devices()) return rank % device_count();
    check_device(rank);
    return rank;
}

const DeviceProfile& Cluster::profile_of(std::int64_t device) const {
    return spec_.device_of_node(node_of(device));
}

Distance Cluster::distance_through(std::int64_t node_a, std::int64_t rail_a, std::int64_t node_b,
                                   std::int64_t rail_b) const {
    if (fabric_.edge_switch(node_a, rail_a) == fabric_.edge_switch(node_b, rail_b)) return Distance::same_leaf;
    return fabric_.pod_of(node_a) == fabric_.pod_of(node_b) ? Distance::cross_leaf : Distance::cross_pod;
}

Distance Cluster::distance(std::int64_t a, std::int64_t b) const {
    const std::int64_t node_a = node_of(a), node_b = node_of(b);
    if (node_a == node_b) return a == b ? Distance::same_device : Distance::same_node;
    return distance_through(node_a, rail_of(a), node_b, rail_of(b));
}

bool Cluster::forwards_to_rails() const {
    return spec_.routing.nic == NicChoice::pxn && node_.nics() > 1 && node_.hub_kind() == VertexKind::node_switch;
}

int Cluster::path_class(std::int64_t a, std::int64_t b) const {
    const bool alike_inside = node_.hubs() > 0 && node_.cpus() == 0;
    const bool forwards = forwards_to_rails();
    if (!spec_.overrides.empty() || !alike_inside || !fabric_.coordinates_tell_distance() ||
        (fabric_.kind() == FabricKind::rail_only && !forwards)) {
        return -1;
    }
    const std::int64_t node_a = node_of(a), node_b = node_of(b);
    if (node_a == node_b || !forwards) return 2 * static_cast<int>(distance(a, b));
    const std::int64_t rail = rail_of(b);
    return 2 * static_cast<int>(distance_through(node_a, rail, node_b, rail)) + (rail_of(a) == rail ? 0 : 1);
}

}  // namespace orrery::topologies
