#include <gtest/gtest.h>

#include <cmath>

#include "models/implementation.h"
#include "sim/program/rate_spread.h"
#include "topologies/cluster_spec.h"

namespace orrery::program {
namespace {

Plan plan_on_h100() {
    Plan plan;
    plan.cluster = topologies::load_cluster("dgx-h100", 8);
    plan.implementation = models::load_implementation("nemo");
    return plan;
}

TEST(MemorySpread, StudentsDistributionHasTabulatedQuantiles) {
    EXPECT_DOUBLE_EQ(student4_below(0), 0.5);
    EXPECT_NEAR(student4_below(2.132), 0.95, 1e-4);
    EXPECT_NEAR(student4_below(4.604), 0.995, 1e-4);
    EXPECT_NEAR(student4_below(-0.741), 0.25, 1e-4);
    EXPECT_NEAR(student4_below(kStudentQuantile90) - student4_below(-kStudentQuantile90), 0.9, 1e-3);
}

TEST(MemorySpread, ProbabilityFollowsTheDistanceToTheCapacity) {
    Plan plan = plan_on_h100();
    plan.cluster.device.memory_capacity_gib.value = 80;
    const RateSpread spread{.memory_sd = 0.1, .memory_sd_of_stack = {{"nanotron", 0.2}}};
    EXPECT_DOUBLE_EQ(memory_outlook(80, plan, spread).fit_probability, 0.5);
    const MemoryOutlook close = memory_outlook(80 * std::exp(-0.2132), plan, spread);
    EXPECT_NEAR(close.fit_probability, 0.95, 1e-4);
    EXPECT_NEAR(close.high_gib, 80, 0.1);
    EXPECT_NEAR(close.high_gib / close.low_gib, std::exp(2 * 0.213), 1e-9);
    EXPECT_LT(memory_outlook(100, plan, spread).fit_probability, 0.1);
    EXPECT_GT(memory_outlook(10, plan, spread).fit_probability, 0.999);
    plan.implementation.name = "nanotron";
    const MemoryOutlook own = memory_outlook(10, plan, spread);
    EXPECT_NEAR(own.high_gib / own.low_gib, std::exp(4 * 0.213), 1e-9);
}

TEST(MemorySpread, MemoryOnCpusIsKnownExactly) {
    Plan plan = plan_on_h100();
    plan.cluster.device.host_runs_compute = true;
    plan.cluster.device.memory_capacity_gib.value = 16;
    const MemoryOutlook outlook = memory_outlook(12, plan);
    EXPECT_EQ(outlook.low_gib, 12);
    EXPECT_EQ(outlook.high_gib, 12);
    EXPECT_EQ(outlook.fit_probability, 1);
    EXPECT_EQ(memory_outlook(17, plan).fit_probability, 0);
}

/// The built-in rates must state the spread of memory predictions.
TEST(MemorySpread, TheCatalogueStatesIt) {
    EXPECT_GT(built_in_spread().memory_sd, 0.01);
    EXPECT_LT(built_in_spread().memory_sd, 0.3);
    for (const auto& [stack, sd] : built_in_spread().memory_sd_of_stack) {
        EXPECT_LE(sd, built_in_spread().memory_sd) << stack;
        EXPECT_EQ(models::load_implementation(stack).name, stack);
    }
}

}  // namespace
}  // namespace orrery::program
