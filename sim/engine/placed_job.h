// A job on its cluster: where its ranks are, the groups of its Program, and how each of them lies.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/engine/rank_groups.h"
#include "topologies/cluster.h"

namespace orrery::sim {

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
    std::array<std::vector<std::int32_t>, program::kAxisCount> placement_of_;  // by group
};

}  // namespace orrery::sim
