// Decides which transfers between nodes are forwarded to the receiver's rail (PXN). NCCL forwards through members of
// the group only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "topologies/cluster.h"

namespace orrery::sim::algorithms {

class Forwarding {
  public:
    /// For a group on these devices. Keeps a reference to the cluster.
    Forwarding(const topologies::Cluster& cluster, std::span<const std::int64_t> devices) : cluster_(&cluster) {
        if (!cluster.forwards_to_rails()) return;
        rails_.resize(static_cast<std::size_t>(cluster.spec().nodes * cluster.spec().nics_per_node));
        for (const std::int64_t device : devices)
            rails_[index(cluster.node_of(device), cluster.rail_of(device))] = true;
    }
    /// The NIC through which `from` sends to `to`: the one on the receiver's rail if a member of the group sits next to
    /// it.
    [[nodiscard]] topologies::NicChoice choice(std::int64_t from, std::int64_t to) const {
        const bool has_member = !rails_.empty() && rails_[index(cluster_->node_of(from), cluster_->rail_of(to))];
        return has_member ? topologies::NicChoice::pxn : topologies::NicChoice::own;
    }
    /// Whether the choice agrees with the cluster's own routing, so that Cluster::path_class applies.
    [[nodiscard]] bool as_routed(std::int64_t from, std::int64_t to) const {
        return rails_.empty() || choice(from, to) == topologies::NicChoice::pxn ||
               cluster_->node_of(from) == cluster_->node_of(to);
    }

  private:
    [[nodiscard]] std::size_t index(std::int64_t node, std::int64_t rail) const {
        return static_cast<std::size_t>(node * cluster_->spec().nics_per_node + rail);
    }
    const topologies::Cluster* cluster_;
    std::vector<bool> rails_;  // by node and rail: whether a member is next to the NIC; empty: nothing is forwarded
};

}  // namespace orrery::sim::algorithms
