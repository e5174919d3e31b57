#include "sim/sharing/max_min.h"

#include <algorithm>

namespace orrery::sim {

const std::vector<std::int64_t>& MaxMinSolver::levels(const std::vector<Wide>& capacities,
                                                      const std::vector<std::int64_t>& caps,
                                                      const std::vector<Demand>& demands) {
    constexpr std::int64_t kRising = -1;
    levels_.assign(caps.size(), kRising);
    resources_.resize(capacities.size());
    full_at_.resize(capacities.size());
    while (true) {
        // What has stopped takes a fixed share of every resource it uses; summed afresh to keep one rule.
        for (std::size_t i = 0; i < resources_.size(); ++i) resources_[i] = {capacities[i], 0};
        for (const Demand& demand : demands) {
            const std::int64_t level = levels_[static_cast<std::size_t>(demand.activity)];
            Filling& resource = resources_[static_cast<std::size_t>(demand.resource)];
            if (level == kRising) {
                resource.rising += demand.units;
            } else {
                resource.left -= static_cast<Wide>(demand.units) * level;
            }
        }
        std::int64_t lowest = kUnlimited;
        bool any_rising = false;
        for (std::size_t i = 0; i < caps.size(); ++i) {
            if (levels_[i] != kRising) continue;
            lowest = std::min(lowest, caps[i]);
            any_rising = true;
        }
        if (!any_rising) return levels_;
        for (std::size_t i = 0; i < resources_.size(); ++i) {
            const Filling& resource = resources_[i];
            full_at_[i] = resource.rising > 0 ? level_of(resource.left, resource.rising) : kUnlimited;
            lowest = std::min(lowest, full_at_[i]);
        }
        for (const Demand& demand : demands) {
            std::int64_t& level = levels_[static_cast<std::size_t>(demand.activity)];
            if (level == kRising && full_at_[static_cast<std::size_t>(demand.resource)] == lowest) level = lowest;
        }
        for (std::size_t i = 0; i < caps.size(); ++i) {
            if (levels_[i] == kRising && caps[i] == lowest) levels_[i] = lowest;
        }
    }
}

}  // namespace orrery::sim
