#include "sim/engine/max_min.h"

#include <algorithm>

#include "core/error.h"

namespace orrery::sim {

namespace {

struct Filling {
    Wide left = 0;            // capacity * kFullRate minus what fixed activities take
    std::int64_t rising = 0;  // units demanded by activities that are still speeding up
    [[nodiscard]] std::int64_t level() const {
        const Wide level = left / rising;
        return level >= kFullRate ? kFullRate : static_cast<std::int64_t>(level);
    }
};

}  // namespace

std::vector<std::int64_t> max_min_rates(const std::vector<std::int64_t>& capacities, std::size_t activities,
                                        const std::vector<Demand>& demands) {
    constexpr std::int64_t kRising = -1;
    std::vector<std::int64_t> rates(activities, kRising);
    std::vector<Filling> resources(capacities.size());
    for (std::size_t i = 0; i < capacities.size(); ++i)
        resources[i].left = static_cast<Wide>(capacities[i]) * kFullRate;
    for (const Demand& demand : demands) resources[static_cast<std::size_t>(demand.resource)].rising += demand.units;

    std::vector<std::uint8_t> full(capacities.size());
    while (true) {
        std::int64_t lowest = kFullRate;
        for (const Filling& resource : resources) {
            if (resource.rising > 0) lowest = std::min(lowest, resource.level());
        }
        if (lowest == kFullRate) break;
        ORRERY_CHECK(lowest > 0, "a resource is shared by more than it can divide");
        for (std::size_t i = 0; i < resources.size(); ++i) {
            full[i] = resources[i].rising > 0 && resources[i].level() == lowest ? 1 : 0;
        }
        for (const Demand& demand : demands) {
            std::int64_t& rate = rates[static_cast<std::size_t>(demand.activity)];
            if (rate == kRising && full[static_cast<std::size_t>(demand.resource)] != 0) rate = lowest;
        }
        // What has stopped now takes a fixed share of every resource it uses; summed afresh to keep one rule.
        for (std::size_t i = 0; i < resources.size(); ++i) {
            resources[i] = {static_cast<Wide>(capacities[i]) * kFullRate, 0};
        }
        for (const Demand& demand : demands) {
            const std::int64_t rate = rates[static_cast<std::size_t>(demand.activity)];
            Filling& resource = resources[static_cast<std::size_t>(demand.resource)];
            if (rate == kRising) {
                resource.rising += demand.units;
            } else {
                resource.left -= static_cast<Wide>(demand.units) * rate;
            }
        }
    }
    for (std::int64_t& rate : rates) {
        if (rate == kRising) rate = kFullRate;
    }
    return rates;
}

}  // namespace orrery::sim
