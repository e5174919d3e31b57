// Private to the planner: the plans that a search has simulated and keeps, beside those found elsewhere.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "sim/program/plan_result.h"

namespace orrery::sim {

class BestPlans {
  public:
    /// `keep`, `prove` and `rivals`: those of search_plans.
    BestPlans(std::size_t keep, std::size_t prove, std::span<const double> rivals)
        : keep_(keep), prove_(prove), rivals_(rivals.begin(), rivals.end()) {}

    void add(program::PlanResult result) {
        const auto faster = [](const auto& a, const auto& b) { return a.step_time_s < b.step_time_s; };
        results_.insert(std::upper_bound(results_.begin(), results_.end(), result, faster), std::move(result));
        const auto before = std::upper_bound(rivals_.begin(), rivals_.end(), results_.back().step_time_s);
        if (results_.size() + static_cast<std::size_t>(before - rivals_.begin()) > keep_) results_.pop_back();
    }

    /// The step time of the last plan to be proven, rivals included; infinite while there are too few plans.
    [[nodiscard]] double time_to_beat_s() const {
        if (results_.size() + rivals_.size() < keep_) return std::numeric_limits<double>::infinity();
        std::size_t own = 0, other = 0;
        double last = 0;
        while (own + other < prove_) {
            const bool is_own =
                other == rivals_.size() || (own < results_.size() && results_[own].step_time_s < rivals_[other]);
            last = is_own ? results_[own++].step_time_s : rivals_[other++];
        }
        return last;
    }

    /// The plans kept, fastest first.
    [[nodiscard]] std::vector<program::PlanResult> take() { return std::move(results_); }

  private:
    std::size_t keep_, prove_;
    std::vector<double> rivals_;
    std::vector<program::PlanResult> results_;
};

}  // namespace orrery::sim
