// Which transfers between nodes a group forwards to another rail (PXN): NCCL forwards through members only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "topologies/cluster.h"

namespace orrery::sim::algorithms {

class Forwarding {
  public:
    /// Of a group on these devices. Keeps a reference to the cluster.
    Forwarding(const topologies::Cluster& cluster, std::span<const std::int64_t> devices) : cluster_(&cluster) {
        if (!cluster.forwards_to_rails()) return;
        rails_.resize(static_cast<std::size_t>(cluster.spec().nodes * cluster.spec().nics_per_node));
        for (const std::int64_t device : devices)
            rails_[index(cluster.node_of(device), cluster.rail_of(device))] = true;
    }
    /// Through which NIC `from` sends to `to`: that of the receiver's rail where a member sits next to it.
    [[nodiscard]] topologies::NicChoice choice(std::int64_t from, std::int64_t to) const {
        const bool has_member = !rails_.empty() && rails_[index(cluster_->node_of(from), cluster_->rail_of(to))];
        return has_member ? topologies::NicChoice::pxn : topologies::NicChoice::own;
    }
    /// Whether the choice is what the cluster's own routing says, so that Cluster::path_class tells of it.
    [[nodiscard]] bool as_routed(std::int64_t from, std::int64_t to) const {
        return rails_.empty() || choice(from, to) == topologies::NicChoice::pxn ||
               cluster_->node_of(from) == cluster_->node_of(to);
    }

  private:
    [[nodiscard]] std::size_t index(std::int64_t node, std::int64_t rail) const {
        return static_cast<std::size_t>(node * cluster_->spec().nics_per_node + rail);
    }
    const topologies::Cluster* cluster_;
    std::vector<bool> rails_;  // by node and rail: a member is next to the NIC; empty: nothing is forwarded
};

}  // namespace orrery::sim::algorithms
