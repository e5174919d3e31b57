#include "sim/network/algorithms/group.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "core/error.h"

namespace orrery::sim::algorithms {

Group::Group(std::vector<std::int64_t> first, std::vector<std::int64_t> rail)
    : first_(std::move(first)), rail_(std::move(rail)) {
    ORRERY_CHECK(first_.size() > 1 && first_.back() > 0, "a group without members");
    node_.reserve(rail_.size());
    fewest_ = first_.back();
    for (std::int64_t node = 0; node < nodes(); ++node) {
        fewest_ = std::min(fewest_, members_of(node));
        most_ = std::max(most_, members_of(node));
        node_.insert(node_.end(), static_cast<std::size_t>(members_of(node)), node);
    }
}

Group Group::even(std::int64_t nodes, std::int64_t members) {
    ORRERY_CHECK(nodes > 0 && members > 0,
                 "a group of " + std::to_string(nodes) + " nodes with " + std::to_string(members) + " members each");
    std::vector<std::int64_t> first, rail;
    for (std::int64_t node = 0; node <= nodes; ++node) first.push_back(node * members);
    for (std::int64_t rank = 0; rank < nodes * members; ++rank) rail.push_back(rank % members);
    return {std::move(first), std::move(rail)};
}

Group Group::of(const topologies::Cluster& cluster, std::span<const std::int64_t> devices) {
    std::vector<std::int64_t> first, rail;
    rail.reserve(devices.size());
    std::int64_t node = -1;
    for (std::size_t i = 0; i < devices.size(); ++i) {
        const std::int64_t next = cluster.node_of(devices[i]);
        ORRERY_CHECK(next >= node, "the devices of a group must be ordered by node");
        if (next != node) first.push_back(static_cast<std::int64_t>(i));
        node = next;
        rail.push_back(cluster.rail_of(devices[i]));
    }
    first.push_back(static_cast<std::int64_t>(devices.size()));
    return {std::move(first), std::move(rail)};
}

std::vector<std::int64_t> visiting_order(const topologies::Cluster& cluster, std::vector<std::int64_t> devices) {
    const topologies::NodeLayout& layout = cluster.node_layout();
    const bool by_port = layout.shares_pcie();
    const auto place = [&](std::int64_t device) {
        const std::int64_t port = by_port ? layout.port_of(device % layout.devices()) : 0;
        return std::tuple(device / layout.devices(), port, device);
    };
    std::sort(devices.begin(), devices.end(), [&](std::int64_t a, std::int64_t b) { return place(a) < place(b); });
    devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
    return devices;
}

std::vector<std::int64_t> ring_entries(const Group& group, std::int64_t channel) {
    std::vector<std::int64_t> entries;
    std::int64_t last_rail = -1;
    for (std::int64_t node = 0; node < group.nodes(); ++node) {
        const std::int64_t first = group.first_of(node);
        const std::int64_t m = group.members_of(node);
        std::int64_t entry = 0;
        while (entry < m && (node == 0 || group.rail_of(first + entry) != last_rail)) ++entry;
        if (entry == m) entry = channel % m;
        entries.push_back(entry);
        last_rail = group.rail_of(first + (entry - ring_direction(node) + m) % m);
    }
    return entries;
}

}  // namespace orrery::sim::algorithms
