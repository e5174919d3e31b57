// Private to the planner: how long parts of a Program take when nothing else runs. In the simulation they take at least
// so long, for sharing and waiting only add.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "sim/cost/roofline_cost.h"
#include "sim/network/collectives.h"
#include "sim/program/program.h"
#include "topologies/cluster.h"

namespace orrery::sim {

class IsolatedTimes {
  public:
    /// Keeps references to all three.
    IsolatedTimes(const program::Program& program, const topologies::Cluster& cluster, const RooflineCost& cost);

    /// From the start of the list's first computation to the end of its last, each body for itself: in a body,
    /// computation waits for the communication that it needs, as far as that waits for earlier computation of the body.
    [[nodiscard]] double computation_s(std::size_t rank_class, program::SegmentListId list);
    [[nodiscard]] double body_s(std::size_t rank_class, program::BodyId body);
    /// From the start of the first list to the end of the last one's computation, streams being free before. The last
    /// list begins when the computation and the reductions of gradients before it have ended.
    [[nodiscard]] double lists_s(std::size_t rank_class, const std::vector<program::SegmentListId>& lists);
    /// What the list puts on a stream of communication.
    [[nodiscard]] double stream_s(std::size_t rank_class, program::SegmentListId list, program::Stream stream);
    /// Of the list's only transfer.
    [[nodiscard]] double transfer_s(std::size_t rank_class, program::SegmentListId list);

  private:
    using StreamEnds = std::array<double, program::kStreamCount>;
    static constexpr double kBefore = -std::numeric_limits<double>::infinity();

    [[nodiscard]] const std::vector<program::Segment>& segments(std::size_t rank_class,
                                                                program::SegmentListId list) const;
    [[nodiscard]] double communication_s(std::size_t rank_class, const program::Communication& communication);
    [[nodiscard]] const GroupPlacement& placement(std::size_t rank_class, program::GroupAxis axis);
    [[nodiscard]] const std::vector<double>& operators_of(program::BodyId body);
    void play(std::size_t rank_class, program::BodyId body, StreamEnds& ends);

    const program::Program& program_;
    const topologies::Cluster& cluster_;
    const RooflineCost& cost_;
    bool stages_lie_alike_ = false;  // groups of all pipeline ranks have the same placement
    std::map<std::pair<std::size_t, program::GroupAxis>, GroupPlacement> placements_;
    struct CommunicationKey {
        std::size_t rank_class = 0;
        program::GroupAxis axis{};
        program::CommKind kind{};
        std::int64_t bytes = 0;
        auto operator<=>(const CommunicationKey&) const = default;
    };
    std::map<CommunicationKey, double> communications_;
    std::vector<std::vector<double>> instruction_seconds_;              // by body; empty: not computed yet
    std::map<std::pair<std::size_t, program::BodyId>, double> bodies_;  // computation_s of one body
};

}  // namespace orrery::sim
