// Flows over links in time: each moves bytes along a path, at the rate that max-min fair sharing gives it at the
// moment.
//
// A flow waits for its latency once and takes part in the sharing from then on. Its rate is weight * level, where the
// levels are those of sim/sharing/max_min.h: the flows that meet on a full link have equal levels there, but for those
// that something else holds lower. It takes coefficient * rate of each link of its path, so that a whole collective is
// one flow: its bytes are what one member contributes, a link's coefficient is what crosses the link for each of them,
// and the latency is that of all its steps. Rates change only when a flow begins to share, ends, or a link changes;
// what happens at one picosecond is settled together.
//
// Numbers are integers: levels in units of 2^-16 bytes a second, coefficients in units of 10^-9, time in picoseconds.
// An end is rounded up to the next picosecond once, from what is left exactly, however often the rate changed.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "sim/sharing/shared_work.h"

namespace orrery::sim {

inline constexpr double kMostLinkBytesPerSecond = 1e14;
inline constexpr double kMostCoefficient = 1e6;
inline constexpr std::int64_t kMostWeight = 1000;

struct FlowLink {
    std::string name;
    double bytes_per_s = 0;  // > 0, at most kMostLinkBytesPerSecond
};

/// A link of a path, and the bytes that cross it for each byte of the flow: in (0, kMostCoefficient].
struct PathLink {
    std::int32_t link = 0;
    double coefficient = 1;
};

struct Flow {
    std::int64_t tag = 0;   // the caller's name for it; comes back at its end and stands in messages
    std::int32_t path = 0;  // of FlowEngine::add_path
    std::int64_t bytes = 0;
    std::int64_t latency_ps = 0;                                        // ahead of the first byte
    double most_bytes_per_s = std::numeric_limits<double>::infinity();  // > 0
    std::int64_t weight = 1;                                            // 1 to kMostWeight
};

struct FlowEnd {
    std::int64_t tag = 0;
    std::int64_t start_ps = 0;  // before its latency
    std::int64_t end_ps = 0;
};

class FlowEngine {
  public:
    /// Throws InputError naming the link whose bandwidth is out of range.
    explicit FlowEngine(std::vector<FlowLink> links);
    FlowEngine(const FlowEngine&) = delete;
    FlowEngine& operator=(const FlowEngine&) = delete;

    /// The index of a path that flows may take, as often as they like. Without links it holds nothing up. Throws
    /// InputError.
    std::int32_t add_path(std::span<const PathLink> links);

    /// Starts the flow at a moment that has not passed. Of flows that end at one moment, the one that was started by
    /// the earlier call is reported first. Throws InputError naming flow and field.
    void start(const Flow& flow, std::int64_t at_ps);

    /// The link's bandwidth from a moment on that has not passed; 0: it has failed, and what crosses it stands still
    /// until it has bandwidth again. Of several changes at one moment the last counts. Throws InputError.
    void set_bandwidth(std::int32_t link, double bytes_per_s, std::int64_t at_ps);

    /// Told of each end, in order of time; may start further flows and change links from now on.
    using EndHandler = std::function<void(const FlowEnd&)>;

    /// Runs until every flow has ended. Throws InputError naming flow and link when one stands still for good, would
    /// take more than 106 days, or brings the sum of coefficient * weight over the flows on a link above 9.2e9. No more
    /// than 16.7 million flows may be under way at a time.
    void run(const EndHandler& on_end = {});

    [[nodiscard]] std::int64_t now_ps() const { return work_.queue().now(); }
    [[nodiscard]] const std::string& link_name(std::int32_t link) const { return link_names_[at(link)]; }

  private:
    /// Of a flow, by its activity.
    struct State {
        std::int64_t bytes = 0;
        std::int64_t cap = 0;  // a level
        std::int64_t weight = 1;
        std::uint64_t sequence = 0;
        std::int64_t tag = 0;
        std::int64_t start_ps = 0;
        std::int32_t path = 0;
        bool sharing = false;
    };
    struct BandwidthChange {
        std::int64_t time_ps = 0;
        std::int32_t link = 0;
        double bytes_per_s = 0;
    };
    // At one moment links change first, then flows end, then they join. The first slot of the queue is the changes'.
    static constexpr std::int32_t kChangeSlot = 0;
    static constexpr std::uint64_t kChangeOrder = 1;
    static constexpr std::uint64_t kJoinOrder = std::uint64_t{1} << 39;

    static std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }
    [[nodiscard]] static std::string name_of(const State& flow) { return "flow " + std::to_string(flow.tag); }
    void check(const Flow& flow, std::int64_t at_ps) const;
    void schedule_change();
    void apply_changes();
    void join(std::int32_t activity);
    void finish(std::int32_t activity, const EndHandler& on_end);
    void check_none_stuck() const;

    SharedWork work_;
    std::vector<std::string> link_names_;
    std::vector<SharedWork::Draws> paths_;
    std::vector<SharedWork::Draw> path_;
    std::vector<State> flows_;
    std::vector<std::int32_t> free_;        // places in flows_
    std::vector<BandwidthChange> changes_;  // by time, then as they were asked for
    std::size_t next_change_ = 0;
    std::int64_t under_way_ = 0;
    std::uint64_t next_sequence_ = kChangeOrder + 1;
};

}  // namespace orrery::sim
