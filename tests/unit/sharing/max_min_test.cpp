#include "sim/sharing/max_min.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/random.h"

namespace orrery::sim {
namespace {

using Rates = std::vector<std::int64_t>;

/// Of activities that run at full speed when nothing holds them.
Rates max_min_rates(const std::vector<std::int64_t>& capacities, std::size_t activities,
                    const std::vector<Demand>& demands) {
    std::vector<Wide> whole;
    for (const std::int64_t capacity : capacities) whole.push_back(static_cast<Wide>(capacity) * kFullRate);
    return MaxMinSolver().levels(whole, Rates(activities, kFullRate), demands);
}

TEST(MaxMin, WhatFitsRunsAtFullSpeed) {
    EXPECT_EQ(max_min_rates({kUnit}, 2, {{0, 0, kUnit / 2}, {1, 0, kUnit / 2}}), (Rates{kFullRate, kFullRate}));
    EXPECT_EQ(max_min_rates({}, 1, {}), (Rates{kFullRate}));
}

TEST(MaxMin, FourOnTwoCoresHalve) {
    const std::vector<Demand> demands = {{0, 0, kUnit}, {1, 0, kUnit}, {2, 0, kUnit}, {3, 0, kUnit}};
    EXPECT_EQ(max_min_rates({2 * kUnit}, 4, demands), (Rates(4, kFullRate / 2)));
}

TEST(MaxMin, WhoIsStoppedElsewhereLeavesRoom) {
    // Resource 0 holds activities 0, 1, 2 and stops all at 1/3; activity 3 shares resource 1 with activity 2 only, and
    // takes what 2 leaves: 2/3.
    const std::vector<Demand> demands = {{0, 0, kUnit}, {1, 0, kUnit}, {2, 0, kUnit}, {2, 1, kUnit}, {3, 1, kUnit}};
    const Rates rates = max_min_rates({kUnit, kUnit}, 4, demands);
    EXPECT_EQ(rates[0], kFullRate / 3);
    EXPECT_EQ(rates[1], kFullRate / 3);
    EXPECT_EQ(rates[2], kFullRate / 3);
    EXPECT_EQ(rates[3], kFullRate - kFullRate / 3);
}

TEST(MaxMin, UnequalDemandsGetEqualRates) {
    // 0.9 + 0.6 of one link: both run at 1 / 1.5.
    const Rates rates = max_min_rates({kUnit}, 2, {{0, 0, 900'000'000}, {1, 0, 600'000'000}});
    EXPECT_EQ(rates[0], kFullRate * 2 / 3);
    EXPECT_EQ(rates[1], kFullRate * 2 / 3);
}

TEST(MaxMin, RandomCasesAreFeasibleAndFair) {
    const RandomStream random(3, "max-min");
    std::uint64_t draw = 0;
    for (int round = 0; round < 3000; ++round) {
        const auto resources = static_cast<std::size_t>(1 + random.below(draw++, 5));
        const auto activities = static_cast<std::size_t>(1 + random.below(draw++, 8));
        std::vector<std::int64_t> capacities;
        for (std::size_t r = 0; r < resources; ++r) {
            capacities.push_back(kUnit * static_cast<std::int64_t>(1 + random.below(draw++, 3)));
        }
        std::vector<Demand> demands;
        for (std::size_t a = 0; a < activities; ++a) {
            for (std::size_t r = 0; r < resources; ++r) {
                if (random.below(draw++, 2) == 0) continue;
                demands.push_back({static_cast<std::int32_t>(a), static_cast<std::int32_t>(r),
                                   static_cast<std::int64_t>(1 + random.below(draw++, kUnit))});
            }
        }
        const Rates rates = max_min_rates(capacities, activities, demands);

        std::vector<Wide> load(resources);
        std::vector<std::int64_t> units(resources);
        std::vector<std::int64_t> highest(resources);
        for (const Demand& demand : demands) {
            const auto r = static_cast<std::size_t>(demand.resource);
            load[r] += static_cast<Wide>(demand.units) * rates[static_cast<std::size_t>(demand.activity)];
            units[r] += demand.units;
            highest[r] = std::max(highest[r], rates[static_cast<std::size_t>(demand.activity)]);
        }
        for (std::size_t r = 0; r < resources; ++r) ASSERT_LE(load[r], static_cast<Wide>(capacities[r]) * kFullRate);
        // Fair: whoever is below full speed has a full resource on which nobody is faster. Full, but for rounding.
        for (std::size_t a = 0; a < activities; ++a) {
            if (rates[a] == kFullRate) continue;
            bool stopped = false;
            for (const Demand& demand : demands) {
                const auto r = static_cast<std::size_t>(demand.resource);
                if (static_cast<std::size_t>(demand.activity) != a) continue;
                const bool full = load[r] + units[r] > static_cast<Wide>(capacities[r]) * kFullRate;
                stopped = stopped || (full && highest[r] == rates[a]);
            }
            ASSERT_TRUE(stopped) << "round " << round << ", activity " << a;
        }
        // The order of the demands does not matter.
        std::reverse(demands.begin(), demands.end());
        ASSERT_EQ(max_min_rates(capacities, activities, demands), rates);
    }
}

}  // namespace
}  // namespace orrery::sim
