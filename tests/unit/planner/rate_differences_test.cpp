#include "sim/planner/rate_differences.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/planner/planner_cases.h"

namespace orrery::sim {
namespace {

using program::RateDifference;

TEST(RateDifference, TellsCornersFromErrors) {
    const RateDifference good{.slope = 0.5, .above = 0.501, .below = 0.5};
    EXPECT_FALSE(good.has_corner());
    EXPECT_TRUE(good.holds());
    const RateDifference off{.slope = 0.4, .above = 0.5, .below = 0.5};
    EXPECT_FALSE(off.has_corner());
    EXPECT_FALSE(off.holds());
    const RateDifference corner{.slope = 0.5, .above = 0.5, .below = 0.3};
    EXPECT_TRUE(corner.has_corner());
}

/// In a pipeline almost all of whose step is computation, the computation rate has the largest derivative.
TEST(RateDifferences, DerivativesHoldExceptAtCorners) {
    PlanRequest request = plain(request_for("llama2-7b", 8, 16, 2048));
    request.rates = program::resolve_rates(request.implementation, request.cluster);
    const std::vector<RateDifference> differences = rate_differences(plan_of(request, {.tp = 2, .pp = 4}));
    ASSERT_GE(differences.size(), 4U);
    for (const RateDifference& one : differences) {
        EXPECT_TRUE(one.has_corner() || one.holds())
            << one.rate << " " << one.slope << " " << one.above << " " << one.below;
    }
    const auto computation = std::find_if(differences.begin(), differences.end(),
                                          [](const RateDifference& one) { return one.rate.ends_with("/computation"); });
    ASSERT_NE(computation, differences.end());
    EXPECT_GT(computation->slope, 0.5);
}

}  // namespace
}  // namespace orrery::sim
