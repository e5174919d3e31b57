// Communication costs by the network model (sim/network).
#pragma once

#include <vector>

#include "sim/engine/communication_cost.h"
#include "topologies/cluster.h"

namespace orrery::sim {

class NetworkCommunication final : public CommunicationCost {
  public:
    /// Keeps a reference to the cluster.
    explicit NetworkCommunication(const topologies::Cluster& cluster) : cluster_(&cluster) {}
    [[nodiscard]] std::vector<OperationCost> costs(program::GroupAxis axis, std::span<const Operation> operations,
                                                   std::span<const std::int64_t> devices) const override;
    [[nodiscard]] std::vector<std::string> notes(const program::Program& program) const override;

  private:
    const topologies::Cluster* cluster_;
};

}  // namespace orrery::sim
