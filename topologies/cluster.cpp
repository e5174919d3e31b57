#include "topologies/cluster.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>

#include "core/error.h"
#include "core/random.h"

namespace orrery::topologies {
namespace {

constexpr VertexKind kNodeKinds[] = {VertexKind::device,      VertexKind::node_switch, VertexKind::host_memory,
                                     VertexKind::pcie_switch, VertexKind::cpu,         VertexKind::nic};

std::int32_t narrow(std::int64_t value) {
    return static_cast<std::int32_t>(value);
}

/// "WORD NUMBER" at the front of the text, which loses it; nothing when another word stands there.
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
    switch (distance) {
        case Distance::same_device:
            return "same device";
        case Distance::same_node:
            return "same node";
        case Distance::same_leaf:
            return "same leaf";
        case Distance::cross_leaf:
            return "cross leaf";
        case Distance::cross_pod:
            return "cross pod";
    }
    return "?";
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
    graph_ = std::make_shared<const Graph>(make_graph());
    find_nic_links();
    routes_ = std::make_shared<const SwitchRoutes>(*graph_);
    node_routes_ = std::make_shared<const NodeRoutes>(node_, [](std::int64_t, std::int64_t) { return false; });
}

void Cluster::check_size() const {
    const auto cables = static_cast<std::int64_t>(node_.cables().size()) + node_.nics();
    const std::int64_t most = std::numeric_limits<LinkId>::max() / 4;  // before any product below can overflow
    const bool fits = spec_.nodes <= most && cables <= most / spec_.nodes && node_.vertices() <= most / spec_.nodes &&
                      fabric_.switch_count() <= most && fabric_.trunk_count() <= most;
    if (fits) return;
    throw InputError("cluster " + spec_.name, "nodes", std::to_string(spec_.nodes),
                     "so few that the graph has less than 2^31 links");
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

/// Every route between nodes takes two of them; finding them once keeps searches out of path().
void Cluster::find_nic_links() {
    if (fabric_.kind() == FabricKind::none) return;
    nic_links_.reserve(static_cast<std::size_t>(spec_.nodes * node_.nics()));
    for (std::int64_t node = 0; node < spec_.nodes; ++node) {
        for (std::int64_t rail = 0; rail < node_.nics(); ++rail) {
            const VertexId end = nic(node, rail), edge = fabric_switch(fabric_.edge_switch(node, rail));
            const std::optional<LinkId> up = graph_->link_between(end, edge), down = graph_->link_between(edge, end);
            ORRERY_CHECK(up && down, "NIC " + graph_->name(end) + " hangs on no switch");
            nic_links_.push_back({*up, *down});
        }
    }
}

VertexId Cluster::vertex_of(std::int64_t node, std::int64_t local) const {
    std::int64_t first = 0;
    const auto in_block = [&](std::int64_t count, std::int64_t base) {
        return narrow(first + node * count + local - base);
    };
    if (local < node_.first_hub()) return in_block(node_.devices(), 0);
    first += spec_.nodes * node_.devices();
    if (local < node_.first_pcie_switch()) return in_block(node_.hubs(), node_.first_hub());
    first += spec_.nodes * node_.hubs();
    if (local < node_.first_cpu()) return in_block(node_.pcie_switches(), node_.first_pcie_switch());
    first += spec_.nodes * node_.pcie_switches();
    if (local < node_.first_nic()) return in_block(node_.cpus(), node_.first_cpu());
    first += spec_.nodes * node_.cpus();
    return in_block(node_.nics(), node_.first_nic());
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

Distance Cluster::distance(std::int64_t a, std::int64_t b) const {
    const std::int64_t node_a = node_of(a), node_b = node_of(b);
    if (node_a == node_b) return a == b ? Distance::same_device : Distance::same_node;
    if (fabric_.edge_switch(node_a, rail_of(a)) == fabric_.edge_switch(node_b, rail_of(b))) return Distance::same_leaf;
    return fabric_.pod_of(node_a) == fabric_.pod_of(node_b) ? Distance::cross_leaf : Distance::cross_pod;
}

bool Cluster::distance_tells_path() const {
    const bool alike_inside = node_.hubs() > 0 && node_.cpus() == 0;
    return spec_.overrides.empty() && alike_inside && fabric_.coordinates_tell_distance() &&
           fabric_.kind() != FabricKind::rail_only && spec_.routing.nic == NicChoice::own;
}

const NodeRoutes& Cluster::routes_in(std::int64_t node) const {
    if (odd_nodes_.empty()) return *node_routes_;
    const auto odd = odd_nodes_.find(node);
    return odd == odd_nodes_.end() ? *node_routes_ : odd->second;
}

bool Cluster::nic_is_up(std::int64_t node, std::int64_t rail) const {
    return nic_down_.empty() || !nic_down_[static_cast<std::size_t>(node * node_.nics() + rail)];
}

/// Puts links together to a Path.
class Cluster::PathBuilder {
  public:
    explicit PathBuilder(const Cluster& cluster) : cluster_(cluster) {
        path_.bandwidth = BytesPerSecond(std::numeric_limits<double>::infinity());
        path_.effective_bandwidth = path_.bandwidth;
        path_.links.reserve(16);
    }

    void add_inside(std::int64_t node, std::int64_t from, std::int64_t to) {
        const NodeRoutes& routes = cluster_.routes_in(node);
        while (from != to) {
            const std::int64_t next = routes.next(from, to);
            ORRERY_CHECK(next >= 0, "no way inside node " + std::to_string(node));
            if (cluster_.node_.hub_kind() == VertexKind::node_switch && next >= cluster_.node_.first_hub() &&
                next < cluster_.node_.first_pcie_switch()) {
                const std::int64_t after = routes.next(next, to);
                add_stripes(node, from, after);
                from = after;
            } else {
                add(cluster_.graph_->link_between(cluster_.vertex_of(node, from), cluster_.vertex_of(node, next)));
                from = next;
            }
        }
    }

    void add(std::optional<LinkId> id) {
        ORRERY_CHECK(id, "a route over a link that is not there");
        path_.links.push_back(*id);
        count(cluster_.graph_->link(*id));
    }

    void add_switches(VertexId from, VertexId to, std::uint64_t choice) {
        const std::size_t before = path_.links.size();
        cluster_.routes_->append_route(from, to, choice, path_.links);
        for (std::size_t i = before; i < path_.links.size(); ++i) count(cluster_.graph_->link(path_.links[i]));
    }

    [[nodiscard]] Path take() { return std::move(path_); }

  private:
    void count(const Link& hop) {
        ++path_.hops;
        path_.latency += hop.latency;
        path_.bandwidth = std::min(path_.bandwidth, hop.bandwidth);
        path_.effective_bandwidth = std::min(path_.effective_bandwidth, hop.bandwidth * hop.efficiency);
    }

    /// Over every node switch that both have a working link to.
    void add_stripes(std::int64_t node, std::int64_t from, std::int64_t to) {
        const Graph& graph = *cluster_.graph_;
        Picoseconds latency;
        BytesPerSecond bandwidth, effective;
        for (std::int64_t hub = 0; hub < cluster_.node_.hubs(); ++hub) {
            const VertexId through = cluster_.vertex_of(node, cluster_.node_.first_hub() + hub);
            const LinkId up = *graph.link_between(cluster_.vertex_of(node, from), through);
            const LinkId down = *graph.link_between(through, cluster_.vertex_of(node, to));
            const Link &first = graph.link(up), &second = graph.link(down);
            if (first.failed || second.failed) continue;
            path_.links.push_back(up);
            path_.links.push_back(down);
            latency = std::max(latency, first.latency + second.latency);
            bandwidth += std::min(first.bandwidth, second.bandwidth);
            effective += std::min(first.bandwidth * first.efficiency, second.bandwidth * second.efficiency);
        }
        path_.hops += 2;
        path_.latency += latency;
        path_.bandwidth = std::min(path_.bandwidth, bandwidth);
        path_.effective_bandwidth = std::min(path_.effective_bandwidth, effective);
    }

    const Cluster& cluster_;
    Path path_;
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
    const std::int64_t between = routes_->distance(fabric_switch(fabric_.edge_switch(node_a, nics.out)),
                                                   fabric_switch(fabric_.edge_switch(node_b, nics.in)));
    return between < 0 ? -1 : out.cost(local_a, nic_a) + 3 * between + in.cost(nic_b, local_b);
}

Cluster::Nics Cluster::nics_between(std::int64_t a, std::int64_t b, NicChoice choice) const {
    const std::int64_t rail_a = rail_of(a), rail_b = rail_of(b), nics = node_.nics();
    const Nics wanted{choice == NicChoice::pxn && node_.has_nvlink() ? rail_b : rail_a, rail_b};
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
    throw InputError("cluster " + spec_.name + ": device " + std::to_string(a) + " (" + graph_->name(narrow(a)) +
                     ") cannot reach device " + std::to_string(b) + " (" + graph_->name(narrow(b)) +
                     "): every way between them has a failed link or needs one that the fabric lacks");
}

std::uint64_t Cluster::route_choice(std::int64_t a, std::int64_t b, Nics nics) const {
    // On rails a leaf has one NIC of each node; elsewhere it may have all of them.
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

Path Cluster::path(std::int64_t a, std::int64_t b, NicChoice choice) const {
    const std::int64_t node_a = node_of(a), node_b = node_of(b);
    PathBuilder builder(*this);
    const std::int64_t local_a = a % node_.devices(), local_b = b % node_.devices();
    const NodeRoutes& inside = routes_in(node_a);
    if (node_a == node_b && inside.reaches(local_a, local_b)) {
        builder.add_inside(node_a, local_a, local_b);
        return builder.take();
    }
    if (fabric_.kind() == FabricKind::none) {
        throw InputError("cluster " + spec_.name + ": device " + std::to_string(a) + " cannot reach device " +
                         std::to_string(b) + " of the same node: no working link leads from one to the other");
    }
    const Nics nics = nics_between(a, b, choice);
    const VertexId out = fabric_switch(fabric_.edge_switch(node_a, nics.out));
    const VertexId in = fabric_switch(fabric_.edge_switch(node_b, nics.in));
    builder.add_inside(node_a, local_a, local_nic(nics.out));
    builder.add(links_of_nic(node_a, nics.out).up);
    builder.add_switches(out, in, route_choice(a, b, nics));
    builder.add(links_of_nic(node_b, nics.in).down);
    builder.add_inside(node_b, local_nic(nics.in), local_b);
    return builder.take();
}

}  // namespace orrery::topologies
