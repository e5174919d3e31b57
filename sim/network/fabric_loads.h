// What a collective takes of the links that may have to carry more than they can: those between switches, and PCIe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/network/algorithms/link_loads.h"
#include "sim/network/collectives.h"

namespace orrery::sim {

struct FabricLoad {
    topologies::LinkId link = 0;
    /// That the link is busy for each byte of the message, coefficient / (bandwidth * efficiency); rounded down to 20
    /// bits, so that sums of the same parts in another order are equal, and a link that is just full stays so.
    double seconds_per_byte = 0;
};

/// Whether any link may have to.
[[nodiscard]] bool may_over_subscribe(const topologies::Cluster& cluster);

/// Keeps a reference to the cluster. Not for concurrent use.
class FabricLoads {
  public:
    explicit FabricLoads(const topologies::Cluster& cluster);

    /// Of trunks where the fabric may block (topologies::may_block); where links are overridden of NICs' links, too,
    /// since it matters then how much is left of one, and whose traffic goes through it since another is down; of PCIe
    /// and the links between sockets where devices meet there (NodeLayout::shares_pcie). Devices in any order, some
    /// perhaps twice (ranks that share one have no links between them): all but sends and exchanges go by
    /// visiting_order. A group that cannot run the algorithm is taken to run a ring, or direct transfers.
    [[nodiscard]] std::vector<FabricLoad> of(Algorithm algorithm, program::CommKind kind,
                                             std::vector<std::int64_t> devices);

  private:
    [[nodiscard]] bool counts(topologies::LinkKind kind) const;
    const topologies::Cluster* cluster_;
    bool trunks_, nics_, pcie_;
    algorithms::LinkLoads link_loads_;
};

/// Of the busiest link when the group is alone: a message cannot take less than so long for each of its bytes. 0 where
/// no link may have to carry more than it can.
[[nodiscard]] double fabric_seconds_per_byte(const CollectiveCost& cost, program::CommKind kind,
                                             std::span<const std::int64_t> devices, const topologies::Cluster& cluster);

}  // namespace orrery::sim
