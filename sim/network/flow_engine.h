// Simulation of flows over links. Each flow moves bytes along a path, at the rate that max-min fair sharing gives it.
//
// A flow first waits for its latency and then shares links. Its rate is weight * level, with the levels of
// sim/sharing/max_min.h: flows on a full link have equal levels, unless another link or a cap limits a flow further. A
// flow takes coefficient * rate of each link of its path, so that a whole collective can be one flow: its bytes are
// what one member contributes, a link's coefficient is the number of bytes that cross it for each of these bytes, and
// its latency is that of all steps together. Rates change only when a flow begins to share, a flow ends, or a link
// changes. Everything that happens at one picosecond is settled together.
//
// All numbers are integers: levels in units of 2^-16 bytes per second, coefficients in units of 10^-9, time in
// picoseconds. The remaining work is exact, and only the end of a flow is rounded, up to the next picosecond, however
// often its rate changed.
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

/// A link of a path. `coefficient`: bytes that cross the link for each byte of the flow, in (0, kMostCoefficient].
struct PathLink {
    std::int32_t link = 0;
    double coefficient = 1;
};

struct Flow {
    std::int64_t tag = 0;   // chosen by the caller, for FlowEnd and messages
    std::int32_t path = 0;  // index from FlowEngine::add_path
    std::int64_t bytes = 0;
    std::int64_t latency_ps = 0;                                        // before the first byte
    double most_bytes_per_s = std::numeric_limits<double>::infinity();  // > 0
    std::int64_t weight = 1;                                            // 1 to kMostWeight
};

struct FlowEnd {
    std::int64_t tag = 0;
    std::int64_t start_ps = 0;  // begin of its latency
    std::int64_t end_ps = 0;
};

class FlowEngine {
  public:
    /// Throws InputError with the link if a bandwidth is out of range.
    explicit FlowEngine(std::vector<FlowLink> links);
    FlowEngine(const FlowEngine&) = delete;
    FlowEngine& operator=(const FlowEngine&) = delete;

    /// Adds a path and returns its index; any number of flows may use it. A path without links does not limit flows.
    /// Throws InputError if a link or coefficient is out of range.
    std::int32_t add_path(std::span<const PathLink> links);

    /// Starts the flow at `at_ps`, which must not be in the past. If flows end at the same time, they are reported in
    /// the order of the calls of start(). Throws InputError with the flow and the field.
    void start(const Flow& flow, std::int64_t at_ps);

    /// Changes the link's bandwidth at `at_ps`, which must not be in the past. 0: the link has failed, and its flows
    /// stand still until it has bandwidth again. The last of several changes at one time counts. Throws InputError.
    void set_bandwidth(std::int32_t link, double bytes_per_s, std::int64_t at_ps);

    /// Called for each end, in order of time; may start flows and change links from now on.
    using EndHandler = std::function<void(const FlowEnd&)>;

    /// Runs until every flow has ended. Throws InputError with the flow and the link if a flow stands still forever,
    /// would take more than 106 days, or raises the sum of coefficient * weight over the flows on a link above 9.2e9.
    /// At most 16.7 million flows may be in flight at a time.
    void run(const EndHandler& on_end = {});

    [[nodiscard]] std::int64_t now_ps() const { return work_.queue().now(); }
    [[nodiscard]] const std::string& link_name(std::int32_t link) const { return link_names_[at(link)]; }

  private:
    /// The state of a flow.
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
    // At one time, links change first, then flows end, then flows join. Changes of links use the first slot of the
    // queue.
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
    std::vector<State> flows_;              // by activity
    std::vector<std::int32_t> free_;        // unused elements of flows_
    std::vector<BandwidthChange> changes_;  // by time, then in the order of the calls
    std::size_t next_change_ = 0;
    std::int64_t in_flight_ = 0;
    std::uint64_t next_sequence_ = kChangeOrder + 1;
};

}  // namespace orrery::sim
