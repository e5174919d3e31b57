// The cluster as a graph (graph.h): devices, node switches (or a CPU node's memory), NICs, leaf and spine switches.
//
// The fabric is rail-optimised in two tiers: NIC i of every node of a scalable unit hangs on leaf i of that unit, and
// every leaf has one uplink of NIC speed to each of as many spines as it has nodes below it, so that a leaf's uplinks
// carry together what its downlinks do (non-blocking). A cluster of one node has no leaves.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/units.h"
#include "topologies/cluster_spec.h"
#include "topologies/graph.h"

namespace orrery::topologies {

/// A route. Traffic inside a node is striped evenly over all node switches, so `links` then names every stripe's links.
struct Path {
    std::vector<LinkId> links;           // in travel order; empty from a device to itself
    std::int64_t hops = 0;               // links that one byte crosses
    Picoseconds latency;                 // sum over the hops
    BytesPerSecond bandwidth;            // narrowest hop, nominal; infinite for an empty path
    BytesPerSecond effective_bandwidth;  // narrowest hop by bandwidth * efficiency
};

/// How far two devices are apart, by coordinates alone.
enum class Distance : std::uint8_t {
    same_device,
    same_node,
    same_leaf,   // other node, same scalable unit and rail: one leaf between them
    cross_leaf,  // anything further: through a spine
};
[[nodiscard]] std::string name_of(Distance distance);

class Cluster {
  public:
    explicit Cluster(ClusterSpec spec);

    [[nodiscard]] const ClusterSpec& spec() const { return spec_; }
    [[nodiscard]] std::int64_t device_count() const { return spec_.device_count(); }
    /// Devices are numbered node by node. A device outside [0, device_count) is a BugError here and below.
    [[nodiscard]] std::int64_t node_of(std::int64_t device) const;
    [[nodiscard]] std::int64_t scalable_unit_of(std::int64_t device) const;
    /// Which of its node's NICs the device sends through; -1 when nodes have none.
    [[nodiscard]] std::int64_t rail_of(std::int64_t device) const;
    /// Rank r sits on device r. Where ranks may share devices, rank r sits on device r mod device_count.
    [[nodiscard]] std::int64_t device_of_rank(std::int64_t rank) const;
    [[nodiscard]] Distance distance(std::int64_t a, std::int64_t b) const;
    /// The route from a to b: the fewest hops, out through a's own NIC and in through b's own; spine = a's node modulo
    /// the spines, so that the nodes of a unit use different uplinks.
    [[nodiscard]] Path path(std::int64_t a, std::int64_t b) const;

    /// Vertex ids: devices first, in their order.
    [[nodiscard]] const Graph& graph() const { return graph_; }
    [[nodiscard]] VertexId vertex_count() const { return graph_.vertex_count(); }
    [[nodiscard]] LinkId link_count() const { return graph_.link_count(); }
    [[nodiscard]] std::int64_t spine_count() const { return layout_.spines; }
    [[nodiscard]] const Vertex& vertex(VertexId id) const { return graph_.vertex(id); }
    [[nodiscard]] const Link& link(LinkId id) const { return graph_.link(id); }
    [[nodiscard]] std::span<const Link> links_from(VertexId vertex) const { return graph_.links_from(vertex); }
    [[nodiscard]] LinkId first_link(VertexId vertex) const { return graph_.first_link(vertex); }

  private:
    /// Where each kind of vertex starts, and how many there are of what is not in the spec.
    struct Layout {
        std::int64_t hubs_per_node = 0;  // node switches, or one host memory
        std::int64_t units = 0, spines = 0;
        std::int64_t first_hub = 0, first_nic = 0, first_leaf = 0, first_spine = 0, vertices = 0;
    };
    [[nodiscard]] static Layout layout_of(const ClusterSpec& spec);
    [[nodiscard]] VertexId hub(std::int64_t node, std::int64_t index) const;
    [[nodiscard]] VertexId nic(std::int64_t node, std::int64_t rail) const;
    [[nodiscard]] VertexId leaf(std::int64_t unit, std::int64_t rail) const;
    [[nodiscard]] VertexId spine(std::int64_t index) const;
    [[nodiscard]] LinkId link_between(VertexId from, VertexId to) const;
    [[nodiscard]] Path path_through(const std::vector<VertexId>& stops) const;
    void check_device(std::int64_t device) const;
    void make_vertices(GraphBuilder& builder) const;
    void make_links(GraphBuilder& builder) const;
    [[nodiscard]] Graph make_graph() const;

    ClusterSpec spec_;
    Layout layout_;
    Graph graph_;
};

[[nodiscard]] inline Cluster build_cluster(const ClusterSpec& spec) {
    return Cluster(spec);
}

}  // namespace orrery::topologies
