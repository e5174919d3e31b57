// Load of groups on links that may be oversubscribed (fabric_loads.h).
//
// A collective is one flow: for each byte of its message it moves a fixed number of bytes over each link (LinkLoads),
// spread over its duration. Links that all operations together cannot oversubscribe never slow anything down and are
// left out. The others become shared resources, which groups of one or several jobs share max-min fairly.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/engine/communication_cost.h"
#include "sim/engine/placed_job.h"
#include "sim/network/algorithms/algorithm.h"

namespace orrery::sim {

using StateIndex = Index<struct StateTag>;  // in the sequence of the cluster's states

/// What determines the links on which an operation of a group is a load, and how much of a load it is per byte.
struct FabricWay {
    StateIndex state = 0;
    algorithms::Algorithm algorithm{};
    program::CommKind kind{};
    auto operator<=>(const FabricWay&) const = default;
};

/// Use of links by an operation at full speed.
struct FabricRate {
    FabricWay way;
    double bytes_per_second = 0;  // of its message
};

/// One element for each placement of a group and each operation on its axis.
template <typename T>
using PerOperation = IndexedVector<PlacementIndex, IndexedVector<OperationIndex, T>>;
/// nullopt: the operation uses no links.
using FabricRates = IndexedVector<StateIndex, PerOperation<std::optional<FabricRate>>>;

using SharedLink = Index<struct SharedLinkTag>;  // among the links that may be oversubscribed

class FabricUse {
  public:
    /// Load of a group on a link, if its operation goes this way.
    struct Load {
        JobIndex job = 0;
        program::GroupAxis axis{};
        GroupIndex group = 0;
        SharedLink link = 0;
        FabricWay way;
        double seconds_per_byte = 0;  // FabricLoad::seconds_per_byte
    };

    /// No link may be oversubscribed.
    FabricUse() = default;
    FabricUse(const PlacedJobs& jobs, const IndexedVector<JobIndex, FabricRates>& rates,
              std::span<const topologies::Cluster* const> states);

    [[nodiscard]] std::size_t link_count() const { return of_link_.size(); }
    [[nodiscard]] IndexRange<SharedLink> links() const { return of_link_.indices(); }
    [[nodiscard]] std::span<const Load> loads(JobIndex job, program::GroupAxis axis, GroupIndex group) const {
        if (of_group_.all().empty()) return {};
        return of_group_[first_group_[job][axis] + group.value()];
    }
    [[nodiscard]] std::span<const Load> loads(SharedLink link) const { return of_link_[link]; }

  private:
    using AnyGroup = Index<struct AnyGroupTag>;  // over all jobs and axes
    class Collector;
    IndexedVector<JobIndex, program::PerAxis<AnyGroup>> first_group_;
    Buckets<AnyGroup, Load> of_group_;
    Buckets<SharedLink, Load> of_link_;
};

}  // namespace orrery::sim
