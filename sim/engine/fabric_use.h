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
    struct Load {
        SharedLink link = 0;
        FabricWay way;
        double seconds_per_byte = 0;  // FabricLoad::seconds_per_byte
    };
    struct User {
        JobIndex job = 0;
        program::GroupAxis axis{};
        GroupIndex group = 0;
        FabricWay way;
        double seconds_per_byte = 0;
    };

    /// No link may be oversubscribed.
    FabricUse() = default;
    FabricUse(const PlacedJobs& jobs, const IndexedVector<JobIndex, FabricRates>& rates,
              std::span<const topologies::Cluster* const> states);

    [[nodiscard]] std::size_t link_count() const { return first_user_.size() - 1; }
    [[nodiscard]] IndexRange<SharedLink> links() const { return {0, SharedLink::of(link_count())}; }
    [[nodiscard]] std::span<const Load> loads(JobIndex job, program::GroupAxis axis, GroupIndex group) const;
    [[nodiscard]] std::span<const User> users(SharedLink link) const;

  private:
    class Collector;
    std::vector<Load> loads_;  // by job, axis, group
    IndexedVector<JobIndex, program::PerAxis<IndexedVector<GroupIndex, std::int32_t>>> first_load_;
    std::vector<User> users_;  // by link
    IndexedVector<SharedLink, std::int32_t> first_user_{0};
};

}  // namespace orrery::sim
