// The cluster: its spec, its graph (graph.h), the position of each device, and the routes between devices.
//
// Within a node, devices are joined by node switches, direct NVLinks, PCIe switches and CPUs, or host memory
// (node_layout.h); nodes are joined by the switches of the fabric (fabric.h). A route runs inside the sender's node to
// a NIC, through the fabric on a shortest route (fabric_routes.h), and inside the receiver's node. Routes avoid failed
// links.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/units.h"
#include "topologies/cluster_spec.h"
#include "topologies/fabric.h"
#include "topologies/fabric_routes.h"
#include "topologies/graph.h"
#include "topologies/node_layout.h"
#include "topologies/overrides.h"

namespace orrery::topologies {

/// A route with its bandwidth. Traffic through a node's switches is striped evenly over all of them; `links` then lists
/// the links of every stripe.
struct Path {
    std::vector<LinkId> links;           // in travel order; empty from a device to itself
    std::int64_t hops = 0;               // links that one byte crosses
    Picoseconds latency;                 // sum over the hops
    BytesPerSecond bandwidth;            // narrowest hop, nominal; infinite for an empty path
    BytesPerSecond effective_bandwidth;  // narrowest hop by bandwidth * efficiency
};

/// A route as a list of links. find_route reuses its memory, for callers that walk many routes.
struct Route {
    struct Part {
        LinkId link = 0;
        std::int32_t stripes = 1;  // the link carries 1/stripes of the traffic
    };
    /// In travel order. Through node switches: for each switch the link to it, then the link from it.
    std::vector<Part> parts;
    std::int64_t hops = 0;     // links that one byte crosses
    Picoseconds latency;       // sum over the hops
    std::size_t nic_up = 0;    // index of the part from a NIC into the fabric; parts.size() if there is none
    std::size_t nic_down = 0;  // index of the part from the fabric to a NIC; parts.size() if there is none
};

/// How far apart two devices are, from their coordinates alone.
enum class Distance : std::uint8_t {
    same_device,
    same_node,
    same_leaf,   // different nodes, whose NICs for these devices share a switch
    cross_leaf,  // through a spine, or through other routers
    cross_pod,   // through a core, or a global link of a dragonfly
};
[[nodiscard]] std::string name_of(Distance distance);

class Cluster {
  public:
    /// Throws InputError for a geometry or an override that does not fit.
    explicit Cluster(ClusterSpec spec);

    [[nodiscard]] const ClusterSpec& spec() const { return spec_; }
    [[nodiscard]] std::int64_t device_count() const { return spec_.device_count(); }
    /// Devices are numbered node by node. A device outside [0, device_count) is a BugError, here and below.
    [[nodiscard]] std::int64_t node_of(std::int64_t device) const;
    /// The scalable unit of the device's node: nodes of one unit share their leaves, or their router.
    [[nodiscard]] std::int64_t scalable_unit_of(std::int64_t device) const;
    /// The pod in a fabric of three tiers, the group in a dragonfly; 0 in other fabrics.
    [[nodiscard]] std::int64_t pod_of(std::int64_t device) const;
    /// The NIC of its node that the device sends through, the nearest one; -1 when nodes have no NICs.
    [[nodiscard]] std::int64_t rail_of(std::int64_t device) const;
    /// Rank r runs on device r, or on device r mod device_count where ranks may share devices.
    [[nodiscard]] std::int64_t device_of_rank(std::int64_t rank) const;
    [[nodiscard]] const DeviceProfile& profile_of(std::int64_t device) const;
    [[nodiscard]] Distance distance(std::int64_t a, std::int64_t b) const;
    /// Whether traffic to another rail first moves over NVLink to the device on that rail (PXN).
    [[nodiscard]] bool forwards_to_rails() const;
    /// Pairs of devices of one class have equal paths up to vertex names, so that one pair may represent all of them.
    /// -1: pairs of this cluster cannot be classified. Otherwise below kPathClasses.
    [[nodiscard]] int path_class(std::int64_t a, std::int64_t b) const;
    static constexpr int kPathClasses = 10;

    /// The route from a to b according to Routing. By default it leaves through the NIC on b's rail (PXN) if node
    /// switches join the devices, else through a's own NIC, and arrives through b's own NIC. In the fabric it takes
    /// equal-cost route number (sending NIC mod number of routes), so that neighbours use different uplinks. Where that
    /// route is closed (a failed link, or a fabric without links between rails), it takes the pair of NICs with the
    /// shortest route; ties go to the first arriving NIC, then the first leaving NIC, counting upwards from b's rail.
    /// Throws InputError naming both devices when there is no route.
    [[nodiscard]] Path path(std::int64_t a, std::int64_t b) const { return path(a, b, spec_.routing.nic); }
    [[nodiscard]] Path path(std::int64_t a, std::int64_t b, NicChoice choice) const;
    /// The same route, into memory that is reused.
    void find_route(std::int64_t a, std::int64_t b, Route& route) const { find_route(a, b, spec_.routing.nic, route); }
    void find_route(std::int64_t a, std::int64_t b, NicChoice choice, Route& route) const;

    [[nodiscard]] const Graph& graph() const { return *graph_; }
    [[nodiscard]] const Fabric& fabric() const { return fabric_; }
    [[nodiscard]] const NodeLayout& node_layout() const { return node_; }
    [[nodiscard]] const FabricRoutes& fabric_routes() const { return *routes_; }
    /// Vertex ids start with the devices, in their order.
    [[nodiscard]] VertexId vertex_count() const { return graph_->vertex_count(); }
    [[nodiscard]] LinkId link_count() const { return graph_->link_count(); }
    [[nodiscard]] const Vertex& vertex(VertexId id) const { return graph_->vertex(id); }
    [[nodiscard]] const Link& link(LinkId id) const { return graph_->link(id); }
    [[nodiscard]] std::span<const Link> links_from(VertexId vertex) const { return graph_->links_from(vertex); }
    [[nodiscard]] LinkId first_link(VertexId vertex) const { return graph_->first_link(vertex); }
    /// The vertex of this name ("node 3 nic 2", "leaf 0"), computed from the name without a search.
    [[nodiscard]] std::optional<VertexId> vertex_named(const std::string& name) const;
    [[nodiscard]] VertexId nic(std::int64_t node, std::int64_t rail) const;
    [[nodiscard]] VertexId fabric_switch(std::int64_t number) const;

  private:
    class RouteBuilder;
    /// Where a vertex of the node layout is in the graph: its id in node 0, and the stride of that id from node to
    /// node.
    struct InNode {
        VertexId first = 0, each = 0;
    };
    struct Nics {
        std::int64_t out = -1, in = -1;
    };
    struct NicLinks {
        LinkId up = -1, down = -1;
    };
    [[nodiscard]] Graph make_graph();
    void find_nic_links();
    [[nodiscard]] const NicLinks& links_of_nic(std::int64_t node, std::int64_t rail) const {
        return nic_links_[static_cast<std::size_t>(node * node_.nics() + rail)];
    }
    void make_vertices(GraphBuilder& builder) const;
    void make_links(GraphBuilder& builder, LinkOverrides& overrides);
    void check_size() const;
    void check_device(std::int64_t device) const;
    [[nodiscard]] Distance distance_through(std::int64_t node_a, std::int64_t rail_a, std::int64_t node_b,
                                            std::int64_t rail_b) const;
    /// The graph's vertex for vertex `local` of the node's layout.
    [[nodiscard]] VertexId vertex_of(std::int64_t node, std::int64_t local) const {
        const InNode& here = inside_[static_cast<std::size_t>(local)];
        return here.first + static_cast<VertexId>(node) * here.each;
    }
    /// The link between two vertices of a node's layout, which a cable must join.
    [[nodiscard]] LinkId link_in(std::int64_t node, std::int64_t from, std::int64_t to) const {
        return graph_->first_link(vertex_of(node, from)) +
               link_place_[static_cast<std::size_t>(from * node_.vertices() + to)];
    }
    void number_insides();
    [[nodiscard]] std::int64_t local_nic(std::int64_t rail) const { return node_.first_nic() + rail; }
    [[nodiscard]] const NodeRoutes& routes_in(std::int64_t node) const;
    [[nodiscard]] bool nic_is_up(std::int64_t node, std::int64_t rail) const;
    /// Cost of the route through these NICs: the costs inside both nodes plus 3 per fabric link; -1: closed.
    [[nodiscard]] std::int64_t way_through(std::int64_t a, std::int64_t b, Nics nics) const;
    [[nodiscard]] Nics nics_between(std::int64_t a, std::int64_t b, NicChoice choice) const;
    [[nodiscard]] std::uint64_t route_choice(std::int64_t a, std::int64_t b, Nics nics) const;

    ClusterSpec spec_;
    NodeLayout node_;
    Fabric fabric_;
    std::vector<InNode> inside_;            // by vertex of the layout
    std::vector<std::int32_t> link_place_;  // by (from, to): position among the links that leave `from`; -1: no cable
    std::shared_ptr<const Graph> graph_;
    std::shared_ptr<const FabricRoutes> routes_;
    std::shared_ptr<const NodeRoutes> node_routes_;
    std::map<std::int64_t, NodeRoutes> odd_nodes_;  // nodes with failed links inside
    std::vector<bool> nic_down_;                    // by node and rail; empty: all are up
    std::vector<NicLinks> nic_links_;               // to and from the fabric, by node and rail
};

[[nodiscard]] inline Cluster build_cluster(const ClusterSpec& spec) {
    return Cluster(spec);
}

}  // namespace orrery::topologies
