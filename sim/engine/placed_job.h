// A job on a cluster: the places of its ranks, and the groups of its Program with their placements.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/engine/rank_groups.h"
#include "topologies/cluster.h"

namespace orrery::sim {

/// The place of a rank in the cluster.
struct RankPlace {
    std::int32_t device = 0, node = 0, scalable_unit = 0;
    std::int32_t rail = 0;  // index of its NIC in the node; 0 if nodes have no NIC
    std::int32_t nic = 0;   // index of its NIC in the cluster
    std::int32_t pod = 0;   // of a fabric with three tiers
    double speed = 1;       // of its computation, beside that of most devices (ClusterSpec::slow_devices)
};
/// The places of the ranks of a job that has `devices` (empty: all of the cluster) to itself. Parallelism::placement
/// gives each rank's index in `devices`. Without it, rank r has index r, modulo their number if ranks may share
/// devices.
[[nodiscard]] std::vector<RankPlace> place_ranks(const program::Parallelism& parallelism,
                                                 const topologies::Cluster& cluster,
                                                 std::span<const std::int64_t> devices = {});

using PlacementIndex = Index<struct PlacementTag>;  // in PlacedJob::placements()

class PlacedJob {
  public:
    /// The placement of a group, shared by all groups with an equivalent placement.
    struct Placement {
        program::GroupAxis axis{};
        std::vector<std::int64_t> devices;  // of one of these groups: ascending, or sender and receiver
    };

    /// Groups share a placement if their placements are equivalent in each of the cluster's states, of which there is
    /// at least one. Keeps a reference to the Program. Throws InputError if a state has no route between members of a
    /// group.
    PlacedJob(const program::Program& program, std::vector<RankPlace> places,
              std::span<const topologies::Cluster* const> states);

    [[nodiscard]] const program::Program& program() const { return *program_; }
    [[nodiscard]] const std::vector<RankPlace>& places() const { return places_; }  // by rank
    [[nodiscard]] const RankGroups& groups() const { return groups_; }
    [[nodiscard]] const IndexedVector<PlacementIndex, Placement>& placements() const { return placements_; }
    [[nodiscard]] PlacementIndex placement_of(program::GroupAxis axis, GroupIndex group) const {
        return placement_of_[axis][group];
    }
    /// In the order of Placement::devices.
    [[nodiscard]] std::vector<std::int64_t> devices_of(program::GroupAxis axis, GroupIndex group) const;

  private:
    const program::Program* program_;
    std::vector<RankPlace> places_;
    RankGroups groups_;
    IndexedVector<PlacementIndex, Placement> placements_;
    program::PerAxis<IndexedVector<GroupIndex, PlacementIndex>> placement_of_;
};

using JobIndex = Index<struct JobTag>;  // among the jobs on a cluster
using PlacedJobs = IndexedVector<JobIndex, PlacedJob>;

}  // namespace orrery::sim
