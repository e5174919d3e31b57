// Load of a collective on the links that may be oversubscribed: those between switches, and PCIe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/network/algorithms/link_loads.h"
#include "sim/network/collectives.h"

namespace orrery::sim {

struct FabricLoad {
    topologies::LinkId link = 0;
    /// Busy time of the link per byte of the message, coefficient / (bandwidth * efficiency). Rounded down to 20 bits,
    /// so that sums do not depend on the order of their terms and a link that is exactly full stays so.
    double seconds_per_byte = 0;
};

/// Whether any link of the cluster may be oversubscribed.
[[nodiscard]] bool may_over_subscribe(const topologies::Cluster& cluster);

/// Keeps a reference to the cluster. Not for concurrent use.
class FabricLoads {
  public:
    explicit FabricLoads(const topologies::Cluster& cluster);

    /// Loads of one collective on trunks, if the fabric may block (topologies::may_block); NIC links, if the cluster
    /// overrides links (a NIC may then be slower, or carry the traffic of one that is down); and PCIe and socket links,
    /// if devices share them (NodeLayout::shares_pcie). Devices may be in any order, and ranks may share one; all
    /// operations but sends and exchanges use visiting_order. A group that cannot run the algorithm is taken to run a
    /// ring or, if that does not implement the collective, direct transfers.
    [[nodiscard]] std::vector<FabricLoad> of(Algorithm algorithm, program::CommKind kind,
                                             std::vector<std::int64_t> devices);

  private:
    [[nodiscard]] bool counts(topologies::LinkKind kind) const;
    const topologies::Cluster* cluster_;
    bool trunks_, nics_, pcie_;
    algorithms::LinkLoads link_loads_;
};

/// Busy time per byte of the busiest link when the group runs alone: a lower bound on the time per byte of a message. 0
/// if no link may be oversubscribed.
[[nodiscard]] double fabric_seconds_per_byte(const CollectiveCost& cost, program::CommKind kind,
                                             std::span<const std::int64_t> devices, const topologies::Cluster& cluster);

}  // namespace orrery::sim
