// Reference solver for max-min fair sharing, directly from the definition in sim/sharing/max_min.h: it solves the
// complete problem in rounds over all activities, one round for each level at which some of them stop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/sharing/max_min.h"

namespace orrery::sim {

struct ReferenceActivity {
    std::vector<MaxMin::Draw> draws;
    std::int64_t cap = kUnlimited;
    std::int64_t weight = 1;
};

/// The level of each activity.
inline std::vector<std::int64_t> reference_max_min(const std::vector<Wide>& capacities,
                                                   const std::vector<ReferenceActivity>& activities) {
    constexpr std::int64_t kRising = -1;
    std::vector<std::int64_t> levels(activities.size(), kRising);
    while (std::find(levels.begin(), levels.end(), kRising) != levels.end()) {
        std::vector<Wide> left = capacities;
        std::vector<Wide> rising(capacities.size());
        for (std::size_t a = 0; a < activities.size(); ++a) {
            for (const MaxMin::Draw& draw : activities[a].draws) {
                const auto r = static_cast<std::size_t>(draw.resource);
                const Wide units = static_cast<Wide>(draw.units) * activities[a].weight;
                if (levels[a] == kRising) {
                    rising[r] += units;
                } else {
                    left[r] -= units * levels[a];
                }
            }
        }
        const auto full_at = [&](std::int32_t resource) -> Wide {
            const auto r = static_cast<std::size_t>(resource);
            return rising[r] > 0 ? left[r] / rising[r] : kUnlimited;
        };
        Wide lowest_cap = kUnlimited, lowest_full = kUnlimited;
        for (std::size_t a = 0; a < activities.size(); ++a) {
            if (levels[a] != kRising) continue;
            lowest_cap = std::min<Wide>(lowest_cap, activities[a].cap);
            for (const MaxMin::Draw& draw : activities[a].draws) {
                lowest_full = std::min(lowest_full, full_at(draw.resource));
            }
        }
        // At equal levels caps come first: an activity at its cap does not need room for one more level.
        const bool at_caps = lowest_cap <= lowest_full;
        for (std::size_t a = 0; a < activities.size(); ++a) {
            if (levels[a] != kRising) continue;
            const auto is_full = [&](const MaxMin::Draw& draw) { return full_at(draw.resource) == lowest_full; };
            const std::vector<MaxMin::Draw>& draws = activities[a].draws;
            if (at_caps ? activities[a].cap == lowest_cap : std::any_of(draws.begin(), draws.end(), is_full)) {
                levels[a] = static_cast<std::int64_t>(std::min(lowest_cap, lowest_full));
            }
        }
    }
    return levels;
}

}  // namespace orrery::sim
