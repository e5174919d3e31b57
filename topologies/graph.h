// Any topology as a frozen graph: devices, the other components of nodes, fabric switches, and directed links with
// bandwidth and latency. Built once, then read-only and safe for concurrent readers. Links are sorted by tail, then
// head, so a vertex's outgoing links are one range and link ids are stable.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/units.h"

namespace orrery::topologies {

using VertexId = std::int32_t;
using LinkId = std::int32_t;

enum class VertexKind : std::uint8_t {
    device,       // GPU, or core of a CPU node
    node_switch,  // NVSwitch
    host_memory,  // of a CPU node, where it joins the devices
    nic,
    leaf,  // fabric switch with NICs below it
    spine,
    core,    // third tier
    router,  // dragonfly, torus: a switch with both NICs and other routers
    pcie_switch,
    cpu,  // socket: root complex and its memory
};
[[nodiscard]] std::string name_of(VertexKind kind);
/// Whether it is a leaf, spine, core or router.
[[nodiscard]] bool is_fabric_switch(VertexKind kind);

enum class LinkKind : std::uint8_t {
    intra_node,  // NVLink: device <-> node switch, device <-> device; device <-> host memory
    host,        // PCIe: device, NIC, PCIe switch and CPU among each other
    nic,         // NIC <-> leaf or router
    trunk,       // leaf <-> spine; router <-> router of one group, or of a torus
    core_trunk,  // spine <-> core; router <-> router of different groups
    socket,      // CPU <-> CPU within a node
};
[[nodiscard]] std::string name_of(LinkKind kind);

struct Vertex {
    VertexKind kind{};
    /// Leaf, spine, core: the rail or plane it belongs to; -1: none, or another kind of vertex.
    std::int32_t plane = -1;
    /// Inside a node: the node. Leaf: the scalable unit or pod; spine: the pod; router: the group; else 0.
    std::int32_t group = 0;
    /// Inside a node: position among the node's vertices of this kind. Fabric switch: number among all of its kind.
    std::int32_t index = 0;
    bool operator==(const Vertex&) const = default;
};

/// One direction of a cable or bus; several cables between two ends are one link of their summed bandwidth.
struct Link {
    VertexId from = 0, to = 0;
    LinkKind kind{};
    bool failed = false;       // carries nothing and no route uses it; bandwidth keeps its former value
    BytesPerSecond bandwidth;  // nominal
    double efficiency = 1;     // fraction of bandwidth that large messages reach
    Picoseconds latency;       // includes the switch it ends in
};

class Graph {
  public:
    [[nodiscard]] VertexId vertex_count() const { return static_cast<VertexId>(vertices_.size()); }
    [[nodiscard]] LinkId link_count() const { return static_cast<LinkId>(links_.size()); }
    [[nodiscard]] const Vertex& vertex(VertexId id) const { return vertices_.at(static_cast<std::size_t>(id)); }
    [[nodiscard]] const Link& link(LinkId id) const { return links_.at(static_cast<std::size_t>(id)); }
    /// Outgoing links of the vertex, ordered by the vertex they reach. Their ids are consecutive from
    /// first_link(vertex); first_link(vertex_count()) is link_count().
    [[nodiscard]] std::span<const Link> links_from(VertexId vertex) const;
    [[nodiscard]] LinkId first_link(VertexId vertex) const { return first_link_.at(static_cast<std::size_t>(vertex)); }
    [[nodiscard]] std::optional<LinkId> link_between(VertexId from, VertexId to) const;
    /// The name given to add_vertex, else one from its coordinates: "node 3 device 2", "node 0 switch 1", "leaf 12".
    [[nodiscard]] std::string name(VertexId id) const;
    /// The vertex of that name, found by a linear scan.
    [[nodiscard]] std::optional<VertexId> find(const std::string& name) const;

  private:
    friend class GraphBuilder;
    std::vector<Vertex> vertices_;
    std::vector<std::string> names_;  // empty when no vertex was given one
    std::vector<Link> links_;
    std::vector<LinkId> first_link_;  // size vertices + 1
};

/// Errors are InputErrors that begin with `source` (a file, "cluster dgx-h100") and name the vertices.
class GraphBuilder {
  public:
    explicit GraphBuilder(std::string source);
    ~GraphBuilder();
    GraphBuilder(const GraphBuilder&) = delete;
    GraphBuilder& operator=(const GraphBuilder&) = delete;

    /// Ids count up from 0. A name must not be taken (checked by freeze).
    VertexId add_vertex(const Vertex& vertex, std::string name = "");
    [[nodiscard]] const Vertex& vertex(VertexId id) const;
    /// Adds one direction. Refuses unknown ends, a self-loop, a bandwidth that is not positive and finite, an
    /// efficiency outside (0, 1], and a negative latency.
    void add_link(const Link& link);
    /// Adds both directions: `link` and its reverse.
    void connect(Link link);
    /// Sorts and freezes; the builder is empty afterwards. Refuses two links of the same direction between the same
    /// ends, and two vertices with the same name.
    [[nodiscard]] Graph freeze();

  private:
    struct Pending;
    std::string source_;
    std::unique_ptr<Pending> pending_;
};

}  // namespace orrery::topologies
