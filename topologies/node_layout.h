// The inside of a node: its vertices, the cables between them, and shortest routes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "topologies/cluster_spec.h"
#include "topologies/graph.h"

namespace orrery::topologies {

/// Vertices of one node, numbered in the order devices, hubs (node switches or host memory), PCIe switches, CPUs, NICs.
class NodeLayout {
  public:
    /// Throws InputError naming the key, its value and what is allowed.
    explicit NodeLayout(const ClusterSpec& spec);

    [[nodiscard]] std::int64_t devices() const { return devices_; }
    [[nodiscard]] std::int64_t hubs() const { return hubs_; }
    [[nodiscard]] VertexKind hub_kind() const { return hub_kind_; }
    [[nodiscard]] std::int64_t pcie_switches() const { return inside_.pcie_switches; }
    [[nodiscard]] std::int64_t cpus() const { return inside_.sockets; }
    [[nodiscard]] std::int64_t nics() const { return nics_; }
    [[nodiscard]] std::int64_t vertices() const { return first_nic() + nics_; }
    [[nodiscard]] std::int64_t first_hub() const { return devices_; }
    [[nodiscard]] std::int64_t first_pcie_switch() const { return devices_ + hubs_; }
    [[nodiscard]] std::int64_t first_cpu() const { return first_pcie_switch() + inside_.pcie_switches; }
    [[nodiscard]] std::int64_t first_nic() const { return first_cpu() + inside_.sockets; }
    /// The node's NIC that a device sends through: one of the nearest (on its PCIe switch, else on its socket). Devices
    /// with the same nearest NICs are distributed over them in order; without sockets all NICs are equally near. -1:
    /// the node has no NIC.
    [[nodiscard]] std::int64_t rail_of(std::int64_t device) const {
        return rails_.empty() ? -1 : rails_[static_cast<std::size_t>(device)];
    }
    /// The smallest part of the node's PCIe tree that holds both devices; without sockets the node.
    [[nodiscard]] NodePart part_of(std::int64_t a, std::int64_t b) const;
    /// The PCIe switch that a device is attached to, or the socket in a node without PCIe switches; 0 without sockets.
    /// Switches of one socket have consecutive numbers.
    [[nodiscard]] std::int64_t port_of(std::int64_t device) const {
        return device_ports_.empty() ? 0 : device_ports_[static_cast<std::size_t>(device)];
    }
    /// Whether traffic of several devices may share PCIe links: in nodes with sockets, if devices are not joined by
    /// NVLink or if a device is attached to another port than its NIC.
    [[nodiscard]] bool shares_pcie() const;
    /// Whether devices are joined by NVLink, so that one may forward another's traffic.
    [[nodiscard]] bool has_nvlink() const { return hub_kind_ == VertexKind::node_switch || !pairs_.empty(); }

    /// Both directions of a cable between two vertices of the node.
    struct Cable {
        std::int64_t a = 0, b = 0;
        Link link;
    };
    [[nodiscard]] const std::vector<Cable>& cables() const { return cables_; }

  private:
    void check(const ClusterSpec& spec) const;
    void add_intra_node(const ClusterSpec& spec);
    void add_host(const ClusterSpec& spec);
    void choose_rails();
    /// The part that holds two ports.
    [[nodiscard]] NodePart part_between(std::int64_t a, std::int64_t b) const;

    std::int64_t devices_ = 0, hubs_ = 0, nics_ = 0;
    VertexKind hub_kind_ = VertexKind::node_switch;
    NodeInside inside_;
    std::vector<DirectLinks> pairs_;
    std::vector<std::int64_t> device_ports_, nic_ports_;  // PCIe switch, else socket; empty without sockets
    std::vector<std::int64_t> rails_;                     // by device
    std::vector<Cable> cables_;
};

/// A link of this kind with the profile's figures and `share` of its bandwidth.
[[nodiscard]] Link link_like(LinkKind kind, const LinkProfile& profile, double share = 1);

/// Shortest routes inside one node that avoid failed links and prefer NVLink to PCIe, and PCIe to the link between
/// sockets. A device forwards only traffic that arrives or leaves over NVLink; a NIC forwards nothing.
class NodeRoutes {
  public:
    /// `failed(a, b)`: whether the cable between two vertices of the node is down.
    NodeRoutes(const NodeLayout& layout, const std::function<bool(std::int64_t, std::int64_t)>& failed);
    [[nodiscard]] bool reaches(std::int64_t from, std::int64_t to) const { return next(from, to) >= 0; }
    /// The vertex after `from` on the route to `to`; -1: there is no route.
    [[nodiscard]] std::int64_t next(std::int64_t from, std::int64_t to) const {
        return next_[static_cast<std::size_t>(to * vertices_ + from)];
    }
    /// Sum over the links: 2 for an NVLink, 3 for a PCIe link, 4 for a link between sockets.
    [[nodiscard]] std::int64_t cost(std::int64_t from, std::int64_t to) const {
        return cost_[static_cast<std::size_t>(to * vertices_ + from)];
    }

  private:
    std::int64_t vertices_ = 0;
    std::vector<std::int16_t> next_, cost_;  // by target, then vertex
};

}  // namespace orrery::topologies
