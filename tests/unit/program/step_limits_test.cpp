// Shares of a step by what limits it.
#include "sim/program/step_limits.h"

#include <gtest/gtest.h>

#include <set>

namespace orrery::program {
namespace {

using models::WorkClass;

TEST(StepLimits, SharesSumToOneAndTheLargestComesFirst) {
    const Sensitivity sensitivity{
        {{.work = WorkClass::product}, 3.0},
        {{.work = WorkClass::attention}, 1.0},
        {{.work = WorkClass::norm}, 1.0},
        {{.work = WorkClass::product, .pass = WorkPass::recomputation}, 0.5},
        {{.work = WorkClass::launch}, 0.25},
        {cell_of(CommKind::all_reduce, GroupAxis::tp, false), 1.25},
        {cell_of(CommKind::all_reduce, GroupAxis::edp, true), 1.0},
        {{.work = WorkClass::embedding}, 0},
        {{.work = WorkClass::loss}, -0.1},
    };
    const std::vector<LimitShare> shares = step_shares(sensitivity, 0.2);
    ASSERT_EQ(shares.size(), 7U);
    double sum = 0;
    for (const LimitShare& share : shares) sum += share.share;
    EXPECT_NEAR(sum, 1, 1e-12);
    const auto expect = [&](std::size_t place, Limit limit, double share) {
        EXPECT_EQ(shares[place].limit, limit) << name_of(shares[place].limit);
        EXPECT_NEAR(shares[place].share, share, 1e-12);
    };
    // 8 seconds of derivatives fill the 0.8 of the step that is no bubble.
    expect(0, Limit::compute, 0.4);
    expect(1, Limit::pipeline_bubble, 0.2);
    expect(2, Limit::tp_communication, 0.125);
    expect(3, Limit::memory_bandwidth, 0.1);
    expect(4, Limit::dp_nic, 0.1);
    expect(5, Limit::recomputation, 0.05);
    expect(6, Limit::host, 0.025);
}

TEST(StepLimits, NothingIsKnownWithoutDerivatives) {
    EXPECT_TRUE(step_shares({}, 0.3).empty());
}

TEST(StepLimits, EveryAxisIsCommunicationAndNamesDiffer) {
    for (const GroupAxis axis : kAxes) {
        for (const bool between_nodes : {false, true}) {
            const Limit limit =
                step_shares({{cell_of(CommKind::all_reduce, axis, between_nodes), 1.0}}, 0).front().limit;
            const std::string name(name_of(limit));
            EXPECT_NE(name.find("communication"), std::string::npos) << name_of(axis);
            EXPECT_EQ(name.find("between_nodes") != std::string::npos, between_nodes) << name_of(axis);
        }
    }
    const std::vector<std::string> names = names_of<Limit>();
    EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
}

}  // namespace
}  // namespace orrery::program
