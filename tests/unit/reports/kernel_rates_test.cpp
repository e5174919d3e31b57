#include "reports/kernel_rates.h"

#include <gtest/gtest.h>

namespace orrery::reports {
namespace {

/// 1,000 GB/s and 10 TFLOP/s.
topologies::DeviceProfile device() {
    topologies::DeviceProfile profile{.name = "timed"};
    profile.peaks = {{.dtype = DType::fp32, .tflops = {.value = 10}}};
    profile.memory_bandwidth_gb_per_s.value = 1000;
    return profile;
}

TEST(KernelRates, ShareOfTheLargestSampleAndTheMedian) {
    topologies::DeviceProfile profile = device();
    profile.operator_samples = {{.op = "gelu_forward", .bytes = 1e6, .flops = 1e6, .seconds = 10e-6},   // 0.1
                                {.op = "gelu_forward", .bytes = 1e9, .flops = 1e6, .seconds = 2e-3},    // 0.5
                                {.op = "gelu_forward", .bytes = 1e7, .flops = 1e6, .seconds = 50e-6}};  // 0.2
    const std::vector<KernelRate> rates = kernel_rates(profile);
    ASSERT_EQ(rates.size(), 1U);
    EXPECT_EQ(rates[0].samples, 3);
    EXPECT_DOUBLE_EQ(rates[0].seconds, 2e-3);
    EXPECT_DOUBLE_EQ(rates[0].share(), 0.5);
    EXPECT_DOUBLE_EQ(rates[0].median_share, 0.2);
    EXPECT_TRUE(rates[0].is_bound_by_memory);
}

TEST(KernelRates, TheSlowestShareIsFirst) {
    topologies::DeviceProfile profile = device();
    // 2e12 FLOPs take 0.2 s, its 3e6 elements 12 us.
    profile.matmul_samples = {{.op = "linear_forward", .m = 1000, .n = 1000, .k = 1'000'000, .seconds = 0.25}};
    profile.operator_samples = {{.op = "attention_forward", .bytes = 1e6, .flops = 1e12, .seconds = 2}};
    const std::vector<KernelRate> rates = kernel_rates(profile);
    ASSERT_EQ(rates.size(), 2U);
    EXPECT_EQ(rates[0].op, "attention_forward");
    EXPECT_DOUBLE_EQ(rates[0].share(), 0.05);
    EXPECT_FALSE(rates[0].is_bound_by_memory);
    EXPECT_EQ(rates[1].op, "linear_forward");
    EXPECT_DOUBLE_EQ(rates[1].share(), 0.8);
    EXPECT_NE(kernel_rates_text(profile).find("arithmetic"), std::string::npos);
}

TEST(KernelRates, NothingTimedIsSaid) {
    EXPECT_TRUE(kernel_rates(device()).empty());
    EXPECT_NE(kernel_rates_text(device()).find("no operator was timed"), std::string::npos);
}

}  // namespace
}  // namespace orrery::reports
