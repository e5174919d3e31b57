#include "sim/program/memory_spread.h"

#include <gtest/gtest.h>

#include <cmath>

#include "topologies/cluster_spec.h"

namespace orrery::program {
namespace {

TEST(MemorySpread, StudentsDistributionHasItsTabledQuantiles) {
    EXPECT_DOUBLE_EQ(student4_below(0), 0.5);
    EXPECT_NEAR(student4_below(2.132), 0.95, 1e-4);
    EXPECT_NEAR(student4_below(4.604), 0.995, 1e-4);
    EXPECT_NEAR(student4_below(-0.741), 0.25, 1e-4);
    EXPECT_NEAR(student4_below(kStudentQuantile90) - student4_below(-kStudentQuantile90), 0.9, 1e-3);
}

TEST(MemorySpread, ProbabilityFollowsTheDistanceToTheCapacity) {
    topologies::DeviceProfile device = topologies::load_cluster("dgx-h100", 8).device;
    device.memory_capacity_gib.value = 80;
    const RateSpread spread{.memory_sd = 0.1};
    EXPECT_DOUBLE_EQ(memory_outlook(80, device, spread).fit_probability, 0.5);
    const MemoryOutlook close = memory_outlook(80 * std::exp(-0.2132), device, spread);
    EXPECT_NEAR(close.fit_probability, 0.95, 1e-4);
    EXPECT_NEAR(close.high_gib, 80, 0.1);
    EXPECT_NEAR(close.high_gib / close.low_gib, std::exp(2 * 0.213), 1e-9);
    EXPECT_LT(memory_outlook(100, device, spread).fit_probability, 0.1);
    EXPECT_GT(memory_outlook(10, device, spread).fit_probability, 0.999);
}

TEST(MemorySpread, WhatTheHostAllocatesIsKnown) {
    topologies::DeviceProfile device = topologies::load_cluster("dgx-h100", 8).device;
    device.host_runs_compute = true;
    device.memory_capacity_gib.value = 16;
    const MemoryOutlook outlook = memory_outlook(12, device);
    EXPECT_EQ(outlook.low_gib, 12);
    EXPECT_EQ(outlook.high_gib, 12);
    EXPECT_EQ(outlook.fit_probability, 1);
    EXPECT_EQ(memory_outlook(17, device).fit_probability, 0);
}

/// Nothing is known of the memory of a catalogue's rates unless their file says so.
TEST(MemorySpread, CatalogueHasAFigure) {
    EXPECT_GT(built_in_spread().memory_sd, 0.01);
    EXPECT_LT(built_in_spread().memory_sd, 0.3);
}

}  // namespace
}  // namespace orrery::program
