#include "sim/engine/max_min.h"

#include <algorithm>

#include "core/error.h"

namespace orrery::sim {

const std::vector<std::int64_t>& MaxMinSolver::rates(const std::vector<std::int64_t>& capacities,
                                                     std::size_t activities, const std::vector<Demand>& demands) {
    constexpr std::int64_t kRising = -1;
    rates_.assign(activities, kRising);
    resources_.resize(capacities.size());
    levels_.resize(capacities.size());
    while (true) {
        // What has stopped takes a fixed share of every resource it uses; summed afresh to keep one rule.
        for (std::size_t i = 0; i < resources_.size(); ++i) {
            resources_[i] = {static_cast<Wide>(capacities[i]) * kFullRate, 0};
        }
        for (const Demand& demand : demands) {
            const std::int64_t rate = rates_[static_cast<std::size_t>(demand.activity)];
            Filling& resource = resources_[static_cast<std::size_t>(demand.resource)];
            if (rate == kRising) {
                resource.rising += demand.units;
            } else {
                resource.left -= static_cast<Wide>(demand.units) * rate;
            }
        }
        std::int64_t lowest = kFullRate;
        for (std::size_t i = 0; i < resources_.size(); ++i) {
            levels_[i] = resources_[i].rising > 0 ? resources_[i].level() : kFullRate;
            lowest = std::min(lowest, levels_[i]);
        }
        if (lowest == kFullRate) break;
        ORRERY_CHECK(lowest > 0, "a resource is shared by more than it can divide");
        for (const Demand& demand : demands) {
            std::int64_t& rate = rates_[static_cast<std::size_t>(demand.activity)];
            if (rate == kRising && levels_[static_cast<std::size_t>(demand.resource)] == lowest) rate = lowest;
        }
    }
    for (std::int64_t& rate : rates_) {
        if (rate == kRising) rate = kFullRate;
    }
    return rates_;
}

std::vector<std::int64_t> max_min_rates(const std::vector<std::int64_t>& capacities, std::size_t activities,
                                        const std::vector<Demand>& demands) {
    return MaxMinSolver().rates(capacities, activities, demands);
}

}  // namespace orrery::sim
