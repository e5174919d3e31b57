// Private to the planner: how long parts of a Program take when nothing else runs. In the simulation they take at least
// as long, since contention and waiting only add time.
#pragma once

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
    /// Keeps references to its arguments.
    IsolatedTimes(const program::Program& program, const topologies::Cluster& cluster, const RooflineCost& cost);

    /// Computation time of the list, body by body: from the start of a body's first computation to the end of its last,
    /// including waits for communication that itself waits for earlier computation of the body.
    [[nodiscard]] double computation_s(program::ClassIndex rank_class, program::SegmentListId list);
    [[nodiscard]] double body_s(program::ClassIndex rank_class, program::BodyId body);
    /// From the start of the first list to the end of the last one's computation, with all streams idle at first. The
    /// last list begins when the computation and gradient reductions before it have ended.
    [[nodiscard]] double lists_s(program::ClassIndex rank_class, const std::vector<program::SegmentListId>& lists);
    /// Total time of the list's communication on a stream.
    [[nodiscard]] double stream_s(program::ClassIndex rank_class, program::SegmentListId list, program::Stream stream);
    /// Time of the list's only send; 0 if it has none.
    [[nodiscard]] double transfer_s(program::ClassIndex rank_class, program::SegmentListId list);

  private:
    using InstructionTimes = IndexedVector<program::InstructionIndex, double>;
    using StreamEnds = program::PerStream<double>;
    static constexpr double kBefore = -std::numeric_limits<double>::infinity();

    [[nodiscard]] const program::SegmentList& segments(program::ClassIndex rank_class,
                                                       program::SegmentListId list) const;
    [[nodiscard]] double communication_s(program::ClassIndex rank_class, const program::Communication& communication);
    [[nodiscard]] const GroupPlacement& placement(program::ClassIndex rank_class, program::GroupAxis axis);
    [[nodiscard]] const InstructionTimes& operators_of(program::BodyId body);
    void play(program::ClassIndex rank_class, program::BodyId body, StreamEnds& ends);

    const program::Program& program_;
    const topologies::Cluster& cluster_;
    const RooflineCost& cost_;
    bool stages_lie_alike_ = false;  // the groups of all pipeline ranks have the same placement
    std::map<std::pair<program::ClassIndex, program::GroupAxis>, GroupPlacement> placements_;
    struct CommunicationKey {
        program::ClassIndex rank_class = 0;
        program::GroupAxis axis{};
        program::CommKind kind{};
        std::int64_t bytes = 0;
        auto operator<=>(const CommunicationKey&) const = default;
    };
    std::map<CommunicationKey, double> communications_;
    IndexedVector<program::BodyId, InstructionTimes> instruction_seconds_;      // empty: not computed yet
    std::map<std::pair<program::ClassIndex, program::BodyId>, double> bodies_;  // computation_s of one body
};

}  // namespace orrery::sim
