// Private to the planner: how long parts of a Program take when nothing else runs. In the simulation they take at least
// as long, since contention and waiting only add time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "sim/cost/roofline_cost.h"
#include "sim/network/collectives.h"
#include "sim/network/operation.h"
#include "sim/program/program.h"
#include "topologies/cluster.h"

namespace orrery::sim {

/// Communication of a rank, or the sum of several.
struct CommunicationTimes {
    double seconds = 0;  // with the plan's rates
    double nic_s = 0;    // for which the rank's own NIC is busy in each direction; all streams share it
    double held = 0;     // share of the device's compute units; of a sum: the smallest

    void add(const CommunicationTimes& other, double times = 1) {
        if (other.seconds <= 0) return;
        held = seconds > 0 ? std::min(held, other.held) : other.held;
        seconds += times * other.seconds;
        nic_s += times * other.nic_s;
    }
};

/// Computation on one device by the share of its compute units that it takes at full speed.
class ComputeDraws {
  public:
    void add(double share, double seconds) { seconds_[bin_of(share)] += seconds; }
    void add(const ComputeDraws& other, double times = 1) {
        for (std::size_t bin = 0; bin < kBins; ++bin) seconds_[bin] += times * other.seconds_[bin];
    }
    /// Speed of computation that draws this share of the compute units where communication holds another, 1 if alone.
    static double speed(double share, double held) { return share > 1 - held ? (1 - held) / share : 1; }
    [[nodiscard]] double seconds() const { return std::accumulate(seconds_.begin(), seconds_.end(), 0.0); }
    /// How long it takes while communication holds this share of the compute units throughout.
    [[nodiscard]] double beside_s(double held) const;
    /// By how much the communication lengthens this computation at least. It runs first while the device computes
    /// nothing, for `idle_s`, then beside what it slows down least.
    [[nodiscard]] double least_delay_s(const CommunicationTimes& communication, double idle_s) const;

  private:
    /// Of the computation of a bin, which draws at least its lower end.
    static double speed_of(std::size_t bin, double held) {
        return speed(static_cast<double>(bin) / static_cast<double>(kBins), held);
    }
    /// Bin b holds shares from b / kBins to (b + 1) / kBins; the last one 1 too.
    static constexpr std::size_t kBins = 16;
    static std::size_t bin_of(double share) {
        return std::min(kBins - 1, static_cast<std::size_t>(std::max(0.0, share) * static_cast<double>(kBins)));
    }
    std::array<double, kBins> seconds_{};
};

/// Times of one operation of a group, on idle links.
[[nodiscard]] CommunicationTimes communication_times(const Operation& operation, program::GroupAxis axis,
                                                     const GroupPlacement& group,
                                                     const topologies::ClusterSpec& cluster,
                                                     const program::Rates& rates);

class IsolatedTimes {
  public:
    /// Keeps references to its arguments. `hides_tokens`: tokens are not waited for, since another pass computes while
    /// they travel.
    IsolatedTimes(const program::Program& program, const topologies::Cluster& cluster, const RooflineCost& cost,
                  bool hides_tokens = false);

    /// Computation time of the list, body by body: from the start of a body's first computation to the end of its last,
    /// including waits for communication that itself waits for earlier computation of the body.
    [[nodiscard]] double computation_s(program::ClassIndex rank_class, program::SegmentListId list);
    [[nodiscard]] double body_s(program::ClassIndex rank_class, program::BodyId body);
    /// Time of the body's communication on the stream, which carries one operation at a time.
    [[nodiscard]] CommunicationTimes on_stream(program::ClassIndex rank_class, program::BodyId body,
                                               program::Stream stream);
    /// From the start of the first list to the end of the last one's computation, with all streams idle at first. The
    /// last list begins when the computation and gradient reductions before it have ended.
    [[nodiscard]] double lists_s(program::ClassIndex rank_class, const std::vector<program::SegmentListId>& lists);
    /// The list's collectives, by stream.
    [[nodiscard]] program::PerStream<CommunicationTimes> communication(program::ClassIndex rank_class,
                                                                       program::SegmentListId list);
    /// The list's computation.
    [[nodiscard]] ComputeDraws draws(program::ClassIndex rank_class, program::SegmentListId list);
    [[nodiscard]] const ComputeDraws& draws(program::BodyId body);
    /// Time of the list's only send; 0 if it has none.
    [[nodiscard]] double transfer_s(program::ClassIndex rank_class, program::SegmentListId list);

  private:
    struct InstructionTime {
        double seconds = 0;  // computation; 0 for communication
        double share = 0;    // of the compute units that it takes at full speed
    };
    using InstructionTimes = IndexedVector<program::InstructionIndex, InstructionTime>;
    using StreamEnds = program::PerStream<double>;
    /// A communication that holds compute units.
    struct Beside {
        double start = 0, end = 0, held = 0;
    };
    static constexpr double kBefore = -std::numeric_limits<double>::infinity();

    [[nodiscard]] const program::SegmentList& segments(program::ClassIndex rank_class,
                                                       program::SegmentListId list) const;
    [[nodiscard]] const CommunicationTimes& times_of(program::ClassIndex rank_class,
                                                     const program::Communication& communication);
    [[nodiscard]] std::vector<std::int64_t> devices_of(program::ClassIndex rank_class, program::GroupAxis axis) const;
    [[nodiscard]] const GroupPlacement& placement(program::ClassIndex rank_class, program::GroupAxis axis);
    /// An all-to-all of a group that is neither a part of a node nor whole nodes may lie otherwise on other stages than
    /// on this one, and be faster there: 6 and 6 ranks send less through a NIC than 8 and 4, and on H800 tokens that
    /// travel once take less time across two nodes than inside one. This is the least over all places relative to
    /// nodes.
    [[nodiscard]] CommunicationTimes least_all_to_all(program::ClassIndex rank_class, program::GroupAxis axis,
                                                      const Operation& operation);
    [[nodiscard]] const InstructionTimes& operators_of(program::BodyId body);
    /// By how much the body's communication delays computation that begins then, at least.
    [[nodiscard]] double delay_s(const InstructionTime& computation, double start) const;
    void play(program::ClassIndex rank_class, program::BodyId body, StreamEnds& ends);
    void play_list(program::ClassIndex rank_class, program::SegmentListId list, StreamEnds& ends);

    const program::Program& program_;
    const topologies::Cluster& cluster_;
    const RooflineCost& cost_;
    bool hides_tokens_;
    bool stages_lie_alike_ = false;  // the groups of all pipeline ranks have the same placement
    std::map<std::pair<program::ClassIndex, program::GroupAxis>, GroupPlacement> placements_;
    struct CommunicationKey {
        program::ClassIndex rank_class = 0;
        program::GroupAxis axis{};
        Operation operation;
        auto operator<=>(const CommunicationKey&) const = default;
    };
    std::map<CommunicationKey, CommunicationTimes> communications_;
    IndexedVector<program::BodyId, InstructionTimes> instruction_times_;  // empty: not computed yet
    IndexedVector<program::BodyId, ComputeDraws> draws_;
    std::map<std::pair<program::ClassIndex, program::BodyId>, double> bodies_;  // computation_s of one body
    program::PerStream<std::vector<Beside>> beside_;                            // of the body that is played, in order
};

}  // namespace orrery::sim
