// Private to the planner: tells the observer of a request how far its search has come.
#pragma once

#include <algorithm>
#include <chrono>

#include "sim/planner/planner.h"

namespace orrery::sim {

class SearchReporter {
  public:
    explicit SearchReporter(const PlanRequest& request) : request_(request) {}
    SearchReporter(const SearchReporter&) = delete;
    SearchReporter& operator=(const SearchReporter&) = delete;
    ~SearchReporter() {
        if (last_.elapsed_s == 0) return;
        last_.is_over = true;
        request_.observer(last_);
    }

    /// Whether some time has passed since the last report.
    [[nodiscard]] bool is_due() const { return request_.observer && Clock::now() - reported_ > kInterval; }
    void report(SearchProgress progress) {
        reported_ = Clock::now();
        progress.implementation = request_.implementation.name;
        progress.elapsed_s = std::chrono::duration<double>(reported_ - begun_).count();
        // What turns out not to fit may be replaced by several others, which were counted as decided.
        progress.decided = std::max(progress.decided, last_.decided);
        last_ = progress;
        request_.observer(last_);
    }

  private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds kInterval{250};

    const PlanRequest& request_;
    Clock::time_point begun_ = Clock::now(), reported_ = begun_;
    SearchProgress last_;
};

}  // namespace orrery::sim
