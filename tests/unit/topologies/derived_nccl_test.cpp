// NCCL's figures for devices that were not measured.
#include "topologies/derived_nccl.h"

#include <gtest/gtest.h>

#include <cmath>

#include "topologies/catalogue.h"
#include "topologies/nccl_figures.h"

namespace orrery::topologies {
namespace {

ClusterSpec without_figures(const char* preset) {
    ClusterSpec spec = load_cluster(preset, 1);
    spec.device.nccl.reset();
    return spec;
}

TEST(DerivedNccl, OverNvlinkTheyComeFromTheNearestMeasuredDevice) {
    const ClusterSpec h100 = without_figures("dgx-h100");
    const DeviceProfile h200 = load_device("h200-sxm-141gb");
    const std::optional<NcclProfile> derived = derived_nccl(h100);
    ASSERT_TRUE(derived);
    EXPECT_EQ(derived->ring.back().share_of_port.value, h200.nccl->ring.back().share_of_port.value);
    EXPECT_EQ(derived->base_us.value, h200.nccl->base_us.value);
    // The copy rate scales with memory bandwidth.
    EXPECT_DOUBLE_EQ(derived->copy_gb_per_s.value,
                     h200.nccl->copy_gb_per_s.value *
                         (h100.device.memory_bandwidth_gb_per_s.value / h200.memory_bandwidth_gb_per_s.value));
    // A100 from H100: NCCL's limits of LL are 87.7 and 141 GB/s.
    const std::optional<NcclProfile> a100 = derived_nccl(without_figures("dgx-a100"));
    ASSERT_TRUE(a100);
    EXPECT_DOUBLE_EQ(a100->ll_channel_gb_per_s.value,
                     load_device("h100-sxm-80gb").nccl->ll_channel_gb_per_s.value * (87.7 / 141));
}

TEST(DerivedNccl, ForAnotherGenerationTheyScaleWithClockAndLinks) {
    const DeviceProfile h100 = load_device("h100-sxm-80gb");
    const std::optional<NcclProfile> a100 = derived_nccl(without_figures("dgx-a100"));
    ASSERT_TRUE(a100);
    // Clocks from the fp32 peaks, with 108 multiprocessors of 64 lanes and 132 of 128: 1.41 and 1.98 GHz.
    const double slower = (67 / (132 * 128.0)) / (19.5 / (108 * 64.0));
    EXPECT_NEAR(slower, 1.98 / 1.41, 0.01);
    EXPECT_NEAR(a100->base_us.value, h100.nccl->base_us.value * slower, 1e-9);
    EXPECT_NEAR(a100->step_us.value, h100.nccl->step_us.value * slower, 1e-9);
    EXPECT_NEAR(a100->simple_base_us.value, h100.nccl->simple_base_us.value * slower, 1e-9);
    EXPECT_NEAR(a100->simple_step_us.value, h100.nccl->simple_step_us.value * slower, 1e-9);
    EXPECT_NEAR(a100->ring.back().share_of_port.value, h100.nccl->ring.back().share_of_port.value * (20.0 / 20.6),
                1e-9);
    EXPECT_NE(a100->base_us.source.find("clocks"), std::string::npos) << a100->base_us.source;
}

TEST(DerivedNccl, OverPcieTheyAreMeansOfTheMeasuredDevices) {
    ClusterSpec spec = without_figures("pcie-l40s");
    spec.device.name = "another";
    const std::optional<NcclProfile> derived = derived_nccl(spec);
    ASSERT_TRUE(derived);
    ASSERT_EQ(derived->ring.size(), 3U);
    const double first = load_device("l40s").nccl->ring.front().share_of_port.value;
    const double second = load_device("rtx-pro-6000").nccl->ring.front().share_of_port.value;
    EXPECT_NEAR(derived->ring.front().share_of_port.value, std::sqrt(first * second), 1e-9);
    // A ring over a wider part of the node is slower.
    EXPECT_GT(derived->ring[0].share_of_port.value, derived->ring[1].share_of_port.value);
    EXPECT_GT(derived->ring[1].share_of_port.value, derived->ring[2].share_of_port.value);
    // Copies are limited by the few channels, not by the memory; the share of grouped sends depends on NCCL, not on the
    // link.
    const double copies =
        load_device("l40s").nccl->copy_gb_per_s.value * load_device("rtx-pro-6000").nccl->copy_gb_per_s.value;
    EXPECT_NEAR(derived->copy_gb_per_s.value, std::sqrt(copies), 1e-9);
    double logs = 0;
    int measured = 0;
    for (const std::string& name : device_names()) {
        const DeviceProfile device = load_device(name);
        if (!device.nccl || device.nccl->base_us.kind != Provenance::fitted) continue;
        logs += std::log(device.nccl->grouped_share.value);
        ++measured;
    }
    EXPECT_NEAR(derived->grouped_share.value, std::exp(logs / measured), 1e-9);
    // Mean of 4 RTX 5090 and 4 RTX 4090; 8 RTX 5090 reach 28 GB/s where 4 reach 35.
    EXPECT_NEAR(derived->ring[1].share_of_port.value, std::sqrt(35.0 / 63 * 12.8 / 31), 1e-9);
    EXPECT_NEAR(derived->ring[2].share_of_port.value, derived->ring[1].share_of_port.value * 0.8, 1e-9);
    // A device's own figures are excluded: for RTX PRO 6000 the mean is over the L40S alone.
    const std::optional<NcclProfile> other = derived_nccl(without_figures("pcie-rtx-pro-6000"));
    ASSERT_TRUE(other);
    EXPECT_NEAR(other->step_us.value, load_device("l40s").nccl->step_us.value, 1e-9);
}

TEST(DerivedNccl, SourcesAreAssumptionsThatNameTheirRule) {
    for (const char* preset : {"dgx-b200", "pcie-l40s"}) {
        const std::optional<NcclProfile> derived = derived_nccl(without_figures(preset));
        ASSERT_TRUE(derived);
        for (const NcclFigure& figure : kNcclFigures) {
            const Figure& one = (*derived).*figure.member;
            if (one.value <= 0) {
                EXPECT_FALSE(figure.required) << figure.key;
                continue;
            }
            EXPECT_EQ(one.kind, Provenance::fallback) << figure.key;
            EXPECT_NE(one.source.find("assumption"), std::string::npos) << figure.key;
        }
    }
}

TEST(DerivedNccl, OldDevicesKeepNcclsTable) {
    EXPECT_FALSE(derived_nccl(without_figures("dgx1-v100")));
    EXPECT_FALSE(load_cluster("dgx1-v100", 8).device.nccl);
}

}  // namespace
}  // namespace orrery::topologies
