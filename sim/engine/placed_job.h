// A job on its cluster: where its ranks are, the groups of its Program, and how each of them lies.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/engine/rank_groups.h"
#include "topologies/cluster.h"

namespace orrery::sim {

/// Where a rank is.
struct RankPlace {
    std::int32_t device = 0, node = 0, scalable_unit = 0;
    std::int32_t rail = 0;  // which of the node's NICs; 0 where nodes have none
    std::int32_t nic = 0;   // the same, counted over all nodes
    std::int32_t pod = 0;   // of a fabric of three tiers
};
/// Of a job that has these devices of the cluster to itself: each rank on the one that Parallelism::placement numbers
/// among them, else on that of its own number, modulo their count where ranks may share devices. No devices: all.
[[nodiscard]] std::vector<RankPlace> place_ranks(const program::Parallelism& parallelism,
                                                 const topologies::Cluster& cluster,
                                                 std::span<const std::int64_t> devices = {});

class PlacedJob {
  public:
    /// How a group lies; groups that lie alike share one.
    struct Placement {
        program::GroupAxis axis{};
        std::vector<std::int64_t> devices;  // of one such group: ascending; of a pair, the sender first
    };

    /// Groups share a placement when they lie alike in each of the states that the cluster goes through, of which there
    /// is at least one. Keeps a reference to the Program. Throws InputError where a state has no way between members.
    PlacedJob(const program::Program& program, std::vector<RankPlace> places,
              std::span<const topologies::Cluster* const> states);

    [[nodiscard]] const program::Program& program() const { return *program_; }
    [[nodiscard]] const std::vector<RankPlace>& places() const { return places_; }  // by rank
    [[nodiscard]] const RankGroups& groups() const { return groups_; }
    [[nodiscard]] const std::vector<Placement>& placements() const { return placements_; }
    /// Index in placements().
    [[nodiscard]] std::int32_t placement_of(std::size_t axis, std::int64_t group) const {
        return placement_of_[axis][static_cast<std::size_t>(group)];
    }
    /// As in Placement.
    [[nodiscard]] std::vector<std::int64_t> devices_of(std::size_t axis, std::int64_t group) const;

  private:
    const program::Program* program_;
    std::vector<RankPlace> places_;
    RankGroups groups_;
    std::vector<Placement> placements_;
    program::PerAxis<std::vector<std::int32_t>> placement_of_;  // by group
};

}  // namespace orrery::sim
