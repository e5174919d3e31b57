#include "topologies/node_layout.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/index.h"

namespace orrery::topologies {
namespace {

[[noreturn]] void refuse(const ClusterSpec& spec, const std::string& key, const std::string& value,
                         const std::string& allowed) {
    throw InputError("cluster " + spec.name, key, value, allowed);
}

/// The port of each of `count` devices or NICs: as listed, else in order and evenly.
std::vector<std::int64_t> ports_of(const std::vector<std::int64_t>& listed, std::int64_t count, std::int64_t ports) {
    if (!listed.empty()) return listed;
    std::vector<std::int64_t> even;
    for (std::int64_t i = 0; i < count; ++i) even.push_back(i * ports / count);
    return even;
}

int cost_of(LinkKind kind) {
    return kind == LinkKind::intra_node ? 2 : kind == LinkKind::socket ? 4 : 3;
}

}  // namespace

Link link_like(LinkKind kind, const LinkProfile& profile, double share) {
    const double microseconds = profile.latency_us.value;
    if (!(microseconds >= 0 && microseconds < 1e12)) {
        throw InputError("link " + profile.name, "latency_us", std::to_string(microseconds), "0 or more, below 10^12");
    }
    Link link;
    link.kind = kind;
    link.bandwidth = BytesPerSecond(profile.bandwidth_gb_per_s_per_direction.value * kGigabyte * share);
    link.efficiency = profile.efficiency.value;
    link.latency = picoseconds_from_seconds(microseconds * 1e-6);
    return link;
}

NodeLayout::NodeLayout(const ClusterSpec& spec)
    : devices_(spec.devices_per_node),
      nics_(spec.nics_per_node),
      inside_(spec.inside),
      pairs_(spec.inside.nvlink_pairs) {
    check(spec);
    if (spec.node_switches > 0) {
        hubs_ = spec.node_switches;
    } else if (inside_.sockets == 0 && pairs_.empty()) {
        hubs_ = 1;
        hub_kind_ = VertexKind::host_memory;
    } else {
        hub_kind_ = VertexKind::host_memory;
    }
    if (inside_.sockets > 0) {
        const std::int64_t ports = inside_.pcie_switches > 0 ? inside_.pcie_switches : inside_.sockets;
        device_ports_ = ports_of(inside_.device_ports, devices_, ports);
        nic_ports_ = ports_of(inside_.nic_ports, nics_, ports);
    }
    choose_rails();
    add_intra_node(spec);
    add_host(spec);
    std::set<std::pair<std::int64_t, std::int64_t>> seen;
    for (const Cable& cable : cables_) {
        if (seen.insert(std::minmax(cable.a, cable.b)).second) continue;
        refuse(spec, "inside.nvlink_pairs",
               "devices " + std::to_string(cable.a) + " and " + std::to_string(cable.b) + " twice",
               "each pair once, with all its links");
    }
}

void NodeLayout::check(const ClusterSpec& spec) const {
    const std::int64_t ports = inside_.pcie_switches > 0 ? inside_.pcie_switches : inside_.sockets;
    if (inside_.pcie_switches > 0 && (inside_.sockets < 1 || inside_.pcie_switches % inside_.sockets != 0)) {
        refuse(spec, "inside.pcie_switches", std::to_string(inside_.pcie_switches),
               "a multiple of inside.sockets, which is " + std::to_string(inside_.sockets));
    }
    const auto check_ports = [&](const char* key, const std::vector<std::int64_t>& listed, std::int64_t count) {
        if (listed.empty()) return;
        if (static_cast<std::int64_t>(listed.size()) != count) {
            refuse(spec, key, std::to_string(listed.size()) + " numbers", std::to_string(count) + ", one for each");
        }
        for (const std::int64_t port : listed) {
            if (port < 0 || port >= ports) {
                refuse(spec, key, std::to_string(port),
                       ports > 0 ? "0 to " + std::to_string(ports - 1) : "nothing, since inside.sockets is 0");
            }
        }
    };
    check_ports("inside.device_ports", inside_.device_ports, devices_);
    check_ports("inside.nic_ports", inside_.nic_ports, nics_);
    if (!pairs_.empty() && spec.node_switches > 0) {
        refuse(spec, "inside.nvlink_pairs", std::to_string(pairs_.size()) + " pairs",
               "none where node_switches is set");
    }
    for (const DirectLinks& pair : pairs_) {
        if (pair.a < 0 || pair.b < 0 || pair.a >= devices_ || pair.b >= devices_ || pair.a == pair.b) {
            refuse(spec, "inside.nvlink_pairs", std::to_string(pair.a) + " and " + std::to_string(pair.b),
                   "two devices of 0 to " + std::to_string(devices_ - 1));
        }
        if (pair.links < 1) refuse(spec, "inside.nvlink_pairs", std::to_string(pair.links) + " links", "at least 1");
    }
}

void NodeLayout::add_intra_node(const ClusterSpec& spec) {
    const double share = hubs_ > 0 ? 1.0 / static_cast<double>(hubs_) : 1.0;
    for (std::int64_t device = 0; device < devices_; ++device) {
        for (std::int64_t hub = 0; hub < hubs_; ++hub) {
            cables_.push_back({device, first_hub() + hub, link_like(LinkKind::intra_node, spec.intra_node, share)});
        }
    }
    std::vector<std::int64_t> links(at(devices_));
    for (const DirectLinks& pair : pairs_) {
        links[at(pair.a)] += pair.links;
        links[at(pair.b)] += pair.links;
    }
    const auto most = static_cast<double>(links.empty() ? 1 : *std::max_element(links.begin(), links.end()));
    for (const DirectLinks& pair : pairs_) {
        cables_.push_back(
            {pair.a, pair.b, link_like(LinkKind::intra_node, spec.intra_node, static_cast<double>(pair.links) / most)});
    }
}

void NodeLayout::add_host(const ClusterSpec& spec) {
    const LinkProfile none;
    if (inside_.sockets == 0) {
        if (nics_ == 0) return;
        const Link host = link_like(LinkKind::host, spec.host_link);
        for (std::int64_t device = 0; device < devices_; ++device) {
            cables_.push_back({device, first_nic() + rail_of(device), host});
        }
        return;
    }
    const Link host = link_like(LinkKind::host, spec.host_link);
    const std::int64_t switches = inside_.pcie_switches;
    const std::int64_t first_port = switches > 0 ? first_pcie_switch() : first_cpu();
    for (std::int64_t i = 0; i < devices_; ++i) cables_.push_back({i, first_port + device_ports_[at(i)], host});
    for (std::int64_t i = 0; i < nics_; ++i) cables_.push_back({first_nic() + i, first_port + nic_ports_[at(i)], host});
    const LinkProfile& uplink = inside_.pcie_uplink == none ? spec.host_link : inside_.pcie_uplink;
    for (std::int64_t i = 0; i < switches; ++i) {
        cables_.push_back(
            {first_pcie_switch() + i, first_cpu() + i * inside_.sockets / switches, link_like(LinkKind::host, uplink)});
    }
    for (std::int64_t a = 0; a < inside_.sockets; ++a) {
        for (std::int64_t b = a + 1; b < inside_.sockets; ++b) {
            cables_.push_back({first_cpu() + a, first_cpu() + b, link_like(LinkKind::socket, inside_.socket_link)});
        }
    }
}

NodePart NodeLayout::part_between(std::int64_t a, std::int64_t b) const {
    if (inside_.pcie_switches == 0) return a == b ? NodePart::socket : NodePart::node;
    if (a == b) return NodePart::pcie_switch;
    const auto socket_of = [&](std::int64_t port) { return port * inside_.sockets / inside_.pcie_switches; };
    return socket_of(a) == socket_of(b) ? NodePart::socket : NodePart::node;
}

NodePart NodeLayout::part_of(std::int64_t a, std::int64_t b) const {
    return device_ports_.empty() ? NodePart::node : part_between(device_ports_[at(a)], device_ports_[at(b)]);
}

bool NodeLayout::shares_pcie() const {
    if (device_ports_.empty()) return false;
    if (!has_nvlink()) return true;
    for (std::int64_t device = 0; device < devices_; ++device) {
        if (nics_ > 0 && device_ports_[at(device)] != nic_ports_[at(rail_of(device))]) return true;
    }
    return false;
}

/// NCCL uses a NIC on the shortest PCIe path from the GPU, and distributes NICs at equal distance over the GPUs
/// (ncclTopoGetLocalNet, src/graph/topo.cc).
void NodeLayout::choose_rails() {
    if (nics_ == 0) return;
    rails_.resize(at(devices_));
    std::map<std::vector<std::int64_t>, std::vector<std::int64_t>> sharers;  // devices by their nearest NICs
    for (std::int64_t device = 0; device < devices_; ++device) {
        std::vector<std::int64_t> nearest;
        NodePart least = NodePart::node;
        for (std::int64_t nic = 0; nic < nics_; ++nic) {
            const NodePart part =
                nic_ports_.empty() ? NodePart::node : part_between(device_ports_[at(device)], nic_ports_[at(nic)]);
            if (part > least) continue;
            if (part < least) nearest.clear();
            least = part;
            nearest.push_back(nic);
        }
        sharers[nearest].push_back(device);
    }
    for (const auto& [nics, devices] : sharers) {
        for (std::size_t i = 0; i < devices.size(); ++i) {
            rails_[at(devices[i])] = nics[i * nics.size() / devices.size()];
        }
    }
}

NodeRoutes::NodeRoutes(const NodeLayout& layout, const std::function<bool(std::int64_t, std::int64_t)>& failed)
    : vertices_(layout.vertices()) {
    constexpr std::int16_t kFar = std::numeric_limits<std::int16_t>::max();
    struct Neighbour {
        std::int64_t vertex = 0;
        LinkKind kind{};
    };
    std::vector<std::vector<Neighbour>> neighbours(at(vertices_));
    for (const NodeLayout::Cable& cable : layout.cables()) {
        if (failed(cable.a, cable.b)) continue;
        neighbours[at(cable.a)].push_back({cable.b, cable.link.kind});
        neighbours[at(cable.b)].push_back({cable.a, cable.link.kind});
    }
    next_.assign(at(vertices_ * vertices_), -1);
    cost_.assign(at(vertices_ * vertices_), kFar);
    const auto is_device = [&](std::int64_t v) { return v < layout.devices(); };
    const auto is_nic = [&](std::int64_t v) { return v >= layout.first_nic(); };
    using Entry = std::tuple<std::int16_t, std::int64_t>;  // cost, vertex
    for (std::int64_t target = 0; target < vertices_; ++target) {
        std::int16_t* const next = &next_[at(target * vertices_)];
        std::int16_t* const cost = &cost_[at(target * vertices_)];
        std::vector<bool> onward_nvlink(at(vertices_));  // whether the vertex's next link to the target is an NVLink
        std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
        cost[target] = 0;
        next[target] = static_cast<std::int16_t>(target);
        queue.emplace(std::int16_t{0}, target);
        while (!queue.empty()) {
            const auto [reached, v] = queue.top();
            queue.pop();
            if (reached > cost[v]) continue;
            for (const Neighbour& from : neighbours[at(v)]) {
                const bool nvlink = from.kind == LinkKind::intra_node;
                const bool forwards = v == target || (!is_nic(v) && (!is_device(v) || nvlink || onward_nvlink[at(v)]));
                const auto sum = static_cast<std::int16_t>(reached + cost_of(from.kind));
                if (!forwards || sum > cost[from.vertex] || (sum == cost[from.vertex] && v >= next[from.vertex])) {
                    continue;
                }
                if (sum < cost[from.vertex]) queue.emplace(sum, from.vertex);
                cost[from.vertex] = sum;
                next[from.vertex] = static_cast<std::int16_t>(v);
                onward_nvlink[at(from.vertex)] = nvlink;
            }
        }
    }
}

}  // namespace orrery::topologies
