// Any topology as a frozen graph: devices, what stands inside nodes, fabric switches, and directed links with bandwidth
// and latency. Built once, then read-only and safe for concurrent readers; links stand sorted by tail, then head, so a
// vertex's outgoing links are one range and link ids are stable.
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
    host_memory,  // of a CPU node whose devices meet there
    nic,
    leaf,  // fabric switch with NICs below it
    spine,
    core,    // third tier
    router,  // dragonfly, torus: NICs and other routers on one switch
    pcie_switch,
    cpu,  // socket: root complex and its memory
};
[[nodiscard]] std::string name_of(VertexKind kind);
/// leaf, spine, core, router.
[[nodiscard]] bool is_fabric_switch(VertexKind kind);

enum class LinkKind : std::uint8_t {
    intra_node,  // NVLink: device <-> node switch, device <-> device; device <-> host memory
    host,        // PCIe: device, NIC, PCIe switch and CPU among each other
    nic,         // NIC <-> leaf or router
    trunk,       // leaf <-> spine; routers of one group, of a torus
    core_trunk,  // spine <-> core; routers of different groups
    socket,      // CPU <-> CPU of a node
};
[[nodiscard]] std::string name_of(LinkKind kind);

struct Vertex {
    VertexKind kind{};
    /// Leaf, spine, core: the rail or plane it belongs to; -1: none, or not of this kind.
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
    bool failed = false;       // carries nothing and no route uses it; bandwidth is what it had
    BytesPerSecond bandwidth;  // nominal
    double efficiency = 1;     // share of it that large messages reach
    Picoseconds latency;       // includes the switch it ends in
};

class Graph {
  public:
    [[nodiscard]] VertexId vertex_count() const { return static_cast<VertexId>(vertices_.size()); }
    [[nodiscard]] LinkId link_count() const { return static_cast<LinkId>(links_.size()); }
    [[nodiscard]] const Vertex& vertex(VertexId id) const { return vertices_.at(static_cast<std::size_t>(id)); }
    [[nodiscard]] const Link& link(LinkId id) const { return links_.at(static_cast<std::size_t>(id)); }
    /// Links that leave the vertex, ordered by the vertex they reach; their ids are consecutive from
    /// first_link(vertex).
    [[nodiscard]] std::span<const Link> links_from(VertexId vertex) const;
    [[nodiscard]] LinkId first_link(VertexId vertex) const { return first_link_.at(static_cast<std::size_t>(vertex)); }
    [[nodiscard]] std::optional<LinkId> link_between(VertexId from, VertexId to) const;
    /// The name it was added with, else one from its coordinates: "node 3 device 2", "node 0 switch 1", "leaf 12".
    [[nodiscard]] std::string name(VertexId id) const;
    /// The vertex of that name, looked up by scanning.
    [[nodiscard]] std::optional<VertexId> find(const std::string& name) const;

  private:
    friend class GraphBuilder;
    std::vector<Vertex> vertices_;
    std::vector<std::string> names_;  // empty when no vertex was given one
    std::vector<Link> links_;
    std::vector<LinkId> first_link_;  // size vertices + 1
};

/// Everything wrong is an InputError that begins with `source` (a file, "cluster dgx-h100") and names the vertices.
class GraphBuilder {
  public:
    explicit GraphBuilder(std::string source);
    ~GraphBuilder();
    GraphBuilder(const GraphBuilder&) = delete;
    GraphBuilder& operator=(const GraphBuilder&) = delete;

    /// Ids count up from 0. A name must not be taken (checked by freeze).
    VertexId add_vertex(const Vertex& vertex, std::string name = "");
    [[nodiscard]] const Vertex& vertex(VertexId id) const;
    /// One direction. Refuses unknown ends, a self-loop, a bandwidth that is not positive and finite, an efficiency
    /// outside (0, 1], a negative latency.
    void add_link(const Link& link);
    /// Both directions: `link` and its twin.
    void connect(Link link);
    /// Sorts and freezes; the builder is empty afterwards. Refuses two links of one direction between the same ends,
    /// and two vertices of one name.
    [[nodiscard]] Graph freeze();

  private:
    struct Pending;
    std::string source_;
    std::unique_ptr<Pending> pending_;
};

}  // namespace orrery::topologies
