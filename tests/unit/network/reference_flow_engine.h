// Reference implementation of sim/network/flow_engine.h: at every event it visits all flows and solves all levels from
// scratch.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "sim/network/flow_engine.h"
#include "tests/unit/sharing/reference_max_min.h"

namespace orrery::sim {

class ReferenceFlowEngine {
  public:
    explicit ReferenceFlowEngine(const std::vector<FlowLink>& links) {
        for (const FlowLink& link : links) capacities_.push_back(capacity_of(link.bytes_per_s));
    }
    void add_path(const std::vector<PathLink>& links) {
        std::vector<MaxMin::Draw> path;
        for (const PathLink& link : links) {
            path.push_back({link.link, std::llround(link.coefficient * static_cast<double>(kUnit))});
        }
        paths_.push_back(path);
    }
    void start(const Flow& flow, std::int64_t at_ps) {
        const double cap = flow.most_bytes_per_s * kLevelsPerByte;
        const auto most = cap < static_cast<double>(kUnlimited) ? static_cast<std::int64_t>(cap) : kUnlimited;
        const std::vector<MaxMin::Draw>& path = paths_[static_cast<std::size_t>(flow.path)];
        const bool is_free = path.empty() && most == kUnlimited;
        flows_.push_back({.flow = flow,
                          .activity = {path, std::max<std::int64_t>(most / flow.weight, 1), flow.weight},
                          .left = is_free ? 0 : static_cast<Wide>(flow.bytes) * 65'536 * 1'000'000'000'000,
                          .start_ps = at_ps,
                          .event_ps = at_ps + flow.latency_ps});
    }
    void set_bandwidth(std::int32_t link, double bytes_per_s, std::int64_t at_ps) {
        changes_.push_back({at_ps, link, bytes_per_s});
        std::stable_sort(changes_.begin(), changes_.end(),
                         [](const Change& a, const Change& b) { return a.at_ps < b.at_ps; });
    }
    void run(const FlowEngine::EndHandler& on_end) {
        while (!flows_.empty()) {
            std::int64_t next_ps = changes_.empty() ? kNever : changes_.front().at_ps;
            for (const State& state : flows_) next_ps = std::min(next_ps, state.event_ps);
            advance_to(next_ps);
            for (; !changes_.empty() && changes_.front().at_ps == now_; changes_.erase(changes_.begin())) {
                capacities_[static_cast<std::size_t>(changes_.front().link)] =
                    capacity_of(changes_.front().bytes_per_s);
            }
            for (std::size_t next = next_flow(); next < flows_.size(); next = next_flow()) handle(next, on_end);
            solve();
        }
    }
    [[nodiscard]] std::int64_t now_ps() const { return now_; }

  private:
    static constexpr double kLevelsPerByte = 65'536;
    static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
    struct State {
        Flow flow;
        ReferenceActivity activity;
        Wide left = 0;
        std::int64_t start_ps = 0;
        std::int64_t event_ps = 0;
        std::int64_t rate = 0;
        bool sharing = false;
    };
    struct Change {
        std::int64_t at_ps = 0;
        std::int32_t link = 0;
        double bytes_per_s = 0;
    };
    static Wide capacity_of(double bytes_per_s) {
        return static_cast<Wide>(std::llround(bytes_per_s * kLevelsPerByte)) * kUnit;
    }
    void advance_to(std::int64_t time_ps) {
        for (State& state : flows_) {
            if (state.sharing) state.left -= static_cast<Wide>(time_ps - now_) * state.rate;
        }
        now_ = time_ps;
    }
    /// The next flow with an event now: ends come before the ends of latencies, and equal ones are FIFO by start.
    /// Returns flows_.size() if there is none.
    [[nodiscard]] std::size_t next_flow() const {
        std::size_t found = flows_.size();
        for (std::size_t i = flows_.size(); i-- > 0;) {
            if (flows_[i].event_ps != now_) continue;
            if (found == flows_.size() || flows_[i].sharing || !flows_[found].sharing) found = i;
        }
        return found;
    }
    void handle(std::size_t index, const FlowEngine::EndHandler& on_end) {
        State& state = flows_[index];
        if (!state.sharing && state.left > 0) {
            state.sharing = true;
            state.event_ps = kNever;
            return;
        }
        const FlowEnd end{state.flow.tag, state.start_ps, now_};
        flows_.erase(flows_.begin() + static_cast<std::ptrdiff_t>(index));
        on_end(end);
    }
    void solve() {
        std::vector<ReferenceActivity> activities;
        for (const State& state : flows_) {
            if (state.sharing) activities.push_back(state.activity);
        }
        const std::vector<std::int64_t> levels = reference_max_min(capacities_, activities);
        std::size_t next = 0;
        for (State& state : flows_) {
            if (!state.sharing) continue;
            state.rate = levels[next++] * state.activity.weight;
            state.event_ps =
                state.rate == 0 ? kNever : now_ + static_cast<std::int64_t>((state.left + state.rate - 1) / state.rate);
        }
    }

    std::vector<Wide> capacities_;
    std::vector<std::vector<MaxMin::Draw>> paths_;
    std::vector<State> flows_;  // in the order of start()
    std::vector<Change> changes_;
    std::int64_t now_ = 0;
};

}  // namespace orrery::sim
