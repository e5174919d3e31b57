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

#include "sim/network/flow_queue.h"
#include "sim/sharing/incremental_max_min.h"

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

struct FlowEngineOptions {
    bool full = false;  // solve the whole problem at every change; the result is the same, for tests
};

class FlowEngine {
  public:
    /// Throws InputError naming the link whose bandwidth is out of range.
    explicit FlowEngine(std::vector<FlowLink> links, FlowEngineOptions options = {});

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
    /// take more than 106 days, or brings the sum of coefficient * weight over the flows on a link above 9.2e9.
    void run(const EndHandler& on_end = {});

    [[nodiscard]] std::int64_t now_ps() const { return now_; }
    [[nodiscard]] const std::string& link_name(std::int32_t link) const { return link_names_[at(link)]; }

  private:
    enum class Phase : std::uint64_t { end = 0, join = 1 };
    struct State {
        Wide left = 0;  // bytes / 2^16 / 10^12
        std::int64_t since_ps = 0;
        std::int64_t level = 0;
        std::int64_t cap = 0;  // a level
        std::int64_t weight = 1;
        std::int64_t sequence = 0;
        std::int64_t tag = 0;
        std::int64_t start_ps = 0;
        std::int32_t path = 0;
        std::int32_t activity = 0;
        bool sharing = false;
        Phase phase = Phase::join;
    };
    struct Path {
        std::int64_t first = 0;  // path_uses_[first, first + count)
        std::int32_t count = 0;
    };
    struct BandwidthChange {
        std::int64_t time_ps = 0;
        std::int32_t link = 0;
        double bytes_per_s = 0;
    };

    static std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }
    [[nodiscard]] std::string name_of(const State& flow) const;
    [[nodiscard]] std::span<const IncrementalMaxMin::Use> uses_of(std::int32_t path) const;
    void schedule(std::int32_t slot, Phase phase, std::int64_t time_ps);
    void apply_changes();
    void handle(std::int32_t slot, const EndHandler& on_end);
    void join(std::int32_t slot);
    void finish(std::int32_t slot, const EndHandler& on_end);
    void settle();
    void settle_full();
    void set_level(std::int32_t slot, std::int64_t level);
    void check_none_stuck() const;

    FlowEngineOptions options_;
    std::vector<std::string> link_names_;
    std::vector<Wide> capacities_;
    IncrementalMaxMin sharing_;
    MaxMinSolver full_solver_;
    std::vector<Path> paths_;
    std::vector<IncrementalMaxMin::Use> path_uses_;
    std::vector<IncrementalMaxMin::Use> weighted_uses_;
    std::vector<State> flows_;  // by slot
    std::vector<std::int32_t> free_slots_;
    std::vector<std::int32_t> slot_of_activity_;
    FlowQueue queue_;
    std::vector<BandwidthChange> changes_;  // by time, then as they were asked for
    std::size_t next_change_ = 0;
    std::int64_t sharing_count_ = 0;
    std::int64_t next_sequence_ = 0;
    std::int64_t now_ = 0;
    bool unsettled_ = false;
};

}  // namespace orrery::sim
