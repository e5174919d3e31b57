#include "topologies/device_words.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "topologies/catalogue.h"
#include "topologies/cluster_variant.h"

namespace orrery::topologies {
namespace {

TEST(DeviceWords, ReadsNamesAsPeopleWriteThem) {
    struct Row {
        const char* text;
        const char* model;
        const char* form;
        std::int64_t memory_gb, power_w;  // 0: not stated
    };
    for (const Row& row : {
             Row{"a100-sxm-80gb", "a100", "sxm", 80, 0},
             Row{"NVIDIA A100-SXM4-80GB", "a100", "sxm", 80, 0},
             Row{"A100 40GB", "a100", "", 40, 0},
             Row{"NVIDIA A100 80GB PCIe", "a100", "pcie", 80, 0},
             Row{"A100-PCIE-40GB", "a100", "pcie", 40, 0},
             Row{"8xH100", "h100", "", 0, 0},
             Row{"8x NVIDIA H100 80GB HBM3", "h100", "sxm", 80, 0},
             Row{"h100-sxm-96gb-500w", "h100", "sxm", 96, 500},
             Row{"NVIDIA H100 NVL", "h100", "nvl", 0, 0},
             Row{"H100 SXM5 (NVLink 900 GB/s)", "h100", "sxm", 0, 0},
             Row{"DGX H100", "h100", "sxm", 0, 0},
             Row{"H200 141GB", "h200", "", 141, 0},
             Row{"NVIDIA H20", "h20", "", 0, 0},
             Row{"NVIDIA GH200 480GB", "gh200", "", 0, 0},
             Row{"GH200 144GB HBM3e", "gh200", "sxm", 144, 0},
             Row{"GB200 NVL72", "gb200", "", 0, 0},
             Row{"NVIDIA B200 (1000 W)", "b200", "", 0, 1000},
             Row{"Tesla V100-SXM2-32GB", "v100", "sxm", 32, 0},
             Row{"Tesla T4", "t4", "", 0, 0},
             Row{"NVIDIA L40S", "l40s", "", 0, 0},
             Row{"L4 24GB", "l4", "", 24, 0},
             Row{"NVIDIA A10G", "a10g", "", 0, 0},
             Row{"NVIDIA A10", "a10", "", 0, 0},
             Row{"RTX A6000", "rtx-a6000", "", 0, 0},
             Row{"NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada", "", 0, 0},
             Row{"NVIDIA GeForce RTX 4090", "rtx-4090", "", 0, 0},
             Row{"4x3090", "rtx-3090", "", 0, 0},
             Row{"AMD Instinct MI300X OAM 192GB", "mi300x", "", 192, 0},
         }) {
        const std::optional<DeviceWords> words = read_device_words(row.text);
        ASSERT_TRUE(words.has_value()) << row.text;
        EXPECT_EQ(words->model, row.model) << row.text;
        EXPECT_EQ(words->form, row.form) << row.text;
        EXPECT_EQ(words->memory_gb.value_or(0), row.memory_gb) << row.text;
        EXPECT_EQ(words->power_w.value_or(0), row.power_w) << row.text;
    }
    for (const char* text : {"", "tpu-v4", "Gaudi 3", "a1000", "gpt4", "RTX", "100"}) {
        EXPECT_FALSE(read_device_words(text).has_value()) << text;
    }
    for (const std::string& name : device_names()) {
        EXPECT_TRUE(name == "cpu-core" || read_device_words(name).has_value()) << name;
    }
}

TEST(DeviceWords, ChoosesTheNearestProfile) {
    EXPECT_EQ(load_device("NVIDIA A100-SXM4-80GB"), load_device("a100-sxm-80gb"));
    EXPECT_EQ(load_device("A100 40GB").name, "a100-sxm-40gb");
    EXPECT_EQ(load_device("A100").name, "a100-sxm-80gb");
    EXPECT_EQ(load_device("A100 PCIe 40GB").name, "a100-pcie-40gb");
    EXPECT_EQ(load_device("8xH100").name, "h100-sxm-80gb");
    EXPECT_EQ(load_device("H100 PCIe").name, "h100-pcie-80gb");
    EXPECT_EQ(load_device("H100 NVL 94GB").name, "h100-nvl-94gb");
    EXPECT_EQ(load_device("h200-sxm").name, "h200-sxm-141gb");
    EXPECT_EQ(load_device("NVIDIA B200 192GB").name, "b200-sxm");  // sold with 180 and 192 GB
    EXPECT_EQ(load_device("GH200 480GB").name, "gh200-96gb");
    EXPECT_THROW((void)load_device("h10"), InputError);
}

TEST(DeviceWords, MemoryAndPowerAreDerived) {
    const DeviceProfile h100 = load_device("h100-sxm-80gb"), limited = load_device("h100-sxm-96gb-500w");
    EXPECT_EQ(limited.name, "h100-sxm-96gb-500w");
    EXPECT_EQ(limited.memory_capacity_gib.value, 96);
    EXPECT_EQ(limited.memory_capacity_gib.kind, Provenance::fallback);
    EXPECT_EQ(limited.memory_bandwidth_gb_per_s, h100.memory_bandwidth_gb_per_s);
    EXPECT_DOUBLE_EQ(limited.peak_flops_per_s(DType::bf16),
                     h100.peak_flops_per_s(DType::bf16) * std::sqrt(500.0 / 700.0));
    EXPECT_EQ(limited.peak_flops_per_s(DType::fp32), h100.peak_flops_per_s(DType::fp32));
    EXPECT_EQ(limited.power_limit_w.value, 500);
    EXPECT_TRUE(limited.peaks.front().tflops.source.starts_with("derived: "));
    EXPECT_EQ(load_device("h100-sxm-80gb-700w"), h100);
    // Max-Q: 300 W instead of 600 W.
    const DeviceProfile max_q = load_device("RTX PRO 6000 Blackwell Max-Q");
    EXPECT_EQ(max_q.power_limit_w.value, 300);
    EXPECT_LT(max_q.peak_flops_per_s(DType::bf16), load_device("rtx-pro-6000").peak_flops_per_s(DType::bf16));
}

TEST(DeviceWords, LinksOfAnotherRateFollowTheNearestOfTheirKind) {
    const LinkProfile slow = load_link("roce-25");
    EXPECT_EQ(slow.name, "roce-25");
    EXPECT_DOUBLE_EQ(slow.bandwidth_gb_per_s_per_direction.value, 25.0 / 8);
    EXPECT_EQ(slow.efficiency, load_link("roce-100").efficiency);
    EXPECT_EQ(load_link("infiniband-56").latency_us, load_link("infiniband-edr").latency_us);
    EXPECT_EQ(load_link("roce-200").bandwidth_gb_per_s_per_direction.value, 25);
    for (const char* name : {"roce-", "roce-0", "roce-fast", "infiniband", "roce-99999"}) {
        EXPECT_THROW((void)load_link(name), InputError) << name;
    }
}

TEST(DeviceWords, ClustersMayUseVariants) {
    const ClusterSpec cluster = make_cluster({.base = "dgx-h100", .device = "h100-sxm-96gb-500w"}, 16);
    EXPECT_EQ(cluster.device.power_limit_w.value, 500);
    EXPECT_EQ(cluster.name, "dgx-h100[device=h100-sxm-96gb-500w]");
    EXPECT_EQ(cluster_from_json_text(to_json_text(cluster), "round trip"), cluster);
    const ClusterSpec amd = load_cluster("mi300x-8", 16);
    EXPECT_EQ(amd.device.name, "mi300x");
    EXPECT_EQ(amd.intra_node.bandwidth_gb_per_s_per_direction.value, 448);
    EXPECT_EQ(load_cluster("aws-g5", 16).device.name, "a10g");
    EXPECT_EQ(load_cluster("gb300-nvl72", 72).device.compute_capability, 103);
}

}  // namespace
}  // namespace orrery::topologies
