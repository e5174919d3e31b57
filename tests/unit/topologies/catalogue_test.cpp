#include "topologies/catalogue.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "core/error.h"
#include "topologies/cluster_spec.h"

namespace orrery::topologies {
namespace {

TEST(Catalogue, DevicesCarryTheirDatasheet) {
    struct Row {
        const char* name;
        std::int64_t compute_capability, compute_units;
        double half, fp32, memory_gb_per_s, memory_gib;
    };
    for (const Row& row : {
             Row{"v100-sxm-16gb", 70, 80, 125, 15.7, 900, 15.78},
             Row{"v100-sxm-32gb", 70, 80, 125, 15.7, 900, 31.75},
             Row{"a100-sxm-40gb", 80, 108, 312, 19.5, 1555, 40},
             Row{"a100-sxm-80gb", 80, 108, 312, 19.5, 2039, 80},
             Row{"h100-sxm-80gb", 90, 132, 989, 67, 3350, 80},
             Row{"h200-sxm-141gb", 90, 132, 989, 67, 4800, 140.4},
             Row{"b200-sxm", 100, 148, 2250, 80, 7672, 179.06},
             Row{"gb200", 100, 152, 2500, 80, 8000, 185.03},
             Row{"gb300", 103, 160, 2500, 80, 8000, 279},
             Row{"gh200-96gb", 90, 132, 989, 67, 4000, 96},
             Row{"h800-sxm-80gb", 90, 132, 989, 67, 3350, 80},
             Row{"h20-sxm-96gb", 90, 78, 148, 44, 4000, 96},
             Row{"h100-pcie-80gb", 90, 114, 756, 51, 2000, 80},
             Row{"h100-nvl-94gb", 90, 132, 835, 60, 3900, 94},
             Row{"a100-pcie-40gb", 80, 108, 312, 19.5, 1555, 40},
             Row{"a100-pcie-80gb", 80, 108, 312, 19.5, 1935, 80},
             Row{"a800-sxm-80gb", 80, 108, 312, 19.5, 2039, 80},
             Row{"v100-pcie-16gb", 70, 80, 112, 14, 900, 16},
             Row{"a10", 86, 72, 125, 31.2, 600, 24},
             Row{"a10g", 86, 80, 70, 35, 600, 24},
             Row{"a40", 86, 84, 149.7, 37.4, 696, 48},
             Row{"rtx-a6000", 86, 84, 154.8, 38.7, 768, 48},
             Row{"rtx-3090", 86, 82, 71, 35.6, 936, 24},
             Row{"rtx-4090", 89, 128, 165.2, 82.6, 1008, 24},
             Row{"rtx-5090", 120, 170, 209.5, 104.8, 1792, 32},
             Row{"l40", 89, 142, 181.05, 90.5, 864, 48},
             Row{"l4", 89, 58, 121, 30.3, 300, 24},
             Row{"t4", 75, 40, 65, 8.1, 320, 16},
             Row{"mi300x", 0, 304, 1307.4, 163.4, 5300, 192},
             Row{"mi325x", 0, 304, 1307.4, 163.4, 6000, 256},
             Row{"mi355x", 0, 256, 2516.6, 157.3, 8000, 288},
         }) {
        const DeviceProfile device = load_device(row.name);
        EXPECT_EQ(device.name, row.name);
        EXPECT_EQ(device.compute_capability, row.compute_capability) << row.name;
        EXPECT_EQ(device.compute_units, row.compute_units) << row.name;
        EXPECT_EQ(device.peak_flops_per_s(DType::fp16), row.half * 1e12) << row.name;
        EXPECT_EQ(device.peak_flops_per_s(DType::fp32), row.fp32 * 1e12) << row.name;
        EXPECT_EQ(device.memory_bandwidth_gb_per_s.value, row.memory_gb_per_s) << row.name;
        EXPECT_EQ(device.memory_capacity_gib.value, row.memory_gib) << row.name;
    }
    EXPECT_EQ(device_names().size(), 36U);
}

TEST(Catalogue, NarrowTypesHaveTheirOwnPeaksAndPlateaus) {
    EXPECT_EQ(load_device("b200-sxm").peak_flops_per_s(DType::fp4), 9e15);
    EXPECT_EQ(load_device("gb300").peak_flops_per_s(DType::fp4), 15e15);
    EXPECT_EQ(load_device("mi355x").peak_flops_per_s(DType::fp4), 10066.3e12);
    EXPECT_THROW((void)load_device("h100-sxm-80gb").peak_flops_per_s(DType::fp4), InputError);
    // 8-bit GEMMs have their own plateau if one was measured.
    const DeviceProfile h100 = load_device("h100-sxm-80gb");
    EXPECT_EQ(h100.matmul_plateau(DType::fp8), 0.709);
    EXPECT_EQ(h100.matmul_plateau(DType::bf16), h100.matmul_efficiency.value);
    const DeviceProfile gb200 = load_device("gb200");
    EXPECT_EQ(gb200.matmul_plateau(DType::fp8), gb200.matmul_efficiency.value);
}

TEST(Catalogue, RingsAreOrderedByPartOfTheNode) {
    const std::string whole = to_json_text(load_cluster("pcie-l40s", 8));
    EXPECT_EQ(cluster_from_json_text(whole, "l40s.json"), load_cluster("pcie-l40s", 8));
    const auto refused = [&](const std::string& from, const std::string& to) {
        std::string text = whole;
        text.replace(text.find(from), from.size(), to);
        try {
            (void)cluster_from_json_text(text, "l40s.json");
        } catch (const InputError& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    const auto says = [](const std::string& message, const char* word) {
        return message.find(word) != std::string::npos;
    };
    EXPECT_PRED2(says, refused("\"within\": \"socket\"", "\"within\": \"rack\""),
                 "\"pcie_switch\", \"socket\", \"node\"");
    EXPECT_PRED2(says, refused("\"within\": \"socket\"", "\"within\": \"pcie_switch\""), "a wider part");
    EXPECT_PRED2(says, refused("\"within\": \"pcie_switch\"", "\"within\": \"node\""), "a wider part");
    EXPECT_PRED2(says, refused("\"within\": \"node\"", "\"within\": \"socket\""), "a wider part");
    nlohmann::json without_node = nlohmann::json::parse(whole);
    without_node["device"]["nccl"]["ring"].erase(2);
    EXPECT_PRED2(says, refused(whole, without_node.dump()), "a list whose last entry has within = node");
}

/// Volta's tensor cores support only fp16; bf16 and tf32 came with Ampere, fp8 with Hopper. On tensor cores the rate
/// doubles when the element size halves.
TEST(Catalogue, PeaksFollowTheGeneration) {
    for (const std::string& name : device_names()) {
        const DeviceProfile device = load_device(name);
        if (device.compute_capability == 0) continue;  // another vendor
        const auto has = [&](DType dtype) {
            try {
                return device.peak_flops_per_s(dtype) > 0;
            } catch (const InputError&) {
                return false;
            }
        };
        EXPECT_TRUE(has(DType::fp16)) << name;
        EXPECT_EQ(has(DType::bf16), device.compute_capability >= 80) << name;
        EXPECT_EQ(has(DType::tf32), device.compute_capability >= 80) << name;
        EXPECT_EQ(has(DType::fp8), device.compute_capability >= 89) << name;
        if (has(DType::bf16)) {
            EXPECT_EQ(device.peak_flops_per_s(DType::bf16), device.peak_flops_per_s(DType::fp16)) << name;
            // L40S: 183, 362 and 733 TFLOP/s by its datasheet, hence the tolerance.
            EXPECT_NEAR(device.peak_flops_per_s(DType::fp16) / device.peak_flops_per_s(DType::tf32), 2, 0.03) << name;
        }
        if (has(DType::fp8)) {
            EXPECT_NEAR(device.peak_flops_per_s(DType::fp8) / device.peak_flops_per_s(DType::bf16), 2, 0.03) << name;
        }
    }
}

TEST(Catalogue, LinksCarryTheirNominalBandwidthPerDirection) {
    const std::map<std::string, double> expected{
        {"efa-100", 12.5},
        {"efa-400", 50},
        {"infiniband-edr", 12.5},
        {"infiniband-hdr", 25},
        {"infiniband-ndr", 50},
        {"nvlink-c2c", 450},
        {"nvlink2", 150},
        {"nvlink3", 300},
        {"nvlink4", 450},
        {"nvlink5", 900},
        {"omnipath-100", 12.5},
        {"pcie-gen3-x16", 16},
        {"pcie-gen4-x16", 31},
        {"pcie-gen5-x16", 63},
        {"roce-100", 12.5},
        {"roce-200", 25},
        {"roce-400", 50},
        {"nvlink-400", 200},
        {"efa-v4-400", 50},
        {"infiniband-xdr", 100},
        {"gpudirect-tcpx-200", 25},
        {"gpudirect-tcpxo-200", 25},
        {"infinity-fabric-mi300x", 448},
        {"infinity-fabric-mi355x", 537.6},
    };
    const std::vector<std::string> names = link_names();
    EXPECT_EQ(names.size(), expected.size());
    for (const std::string& name : names) {
        const LinkProfile link = load_link(name);
        EXPECT_EQ(link.name, name);
        EXPECT_EQ(link.bandwidth_gb_per_s_per_direction.value, expected.at(name)) << name;
        EXPECT_GT(link.efficiency.value, 0) << name;
        EXPECT_LE(link.efficiency.value, 1) << name;
    }
}

/// A preset of its own, or one whose variants may use the device.
TEST(Catalogue, EveryDeviceHasAPreset) {
    std::set<std::int64_t> capabilities;
    for (const std::string& name : preset_names()) {
        if (name != "local") capabilities.insert(load_cluster(name, 1).device.compute_capability);
    }
    for (const std::string& name : device_names()) {
        EXPECT_TRUE(capabilities.contains(load_device(name).compute_capability)) << name;
    }
}

TEST(Catalogue, AnUnknownNameListsTheKnownOnes) {
    try {
        (void)load_device("h1000-sxm-80gb");
        FAIL();
    } catch (const InputError& error) {
        const std::string message = error.what();
        EXPECT_NE(message.find("did you mean 'h100-sxm-80gb'?"), std::string::npos) << message;
        EXPECT_NE(message.find("v100-sxm-32gb"), std::string::npos) << message;
    }
    EXPECT_THROW((void)load_link(""), InputError);
    EXPECT_THROW((void)load_link("nvlink"), InputError);
}

TEST(DTypes, NamesAndSizes) {
    for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16, DType::fp16, DType::int64, DType::int32,
                              DType::uint8, DType::fp8, DType::fp4, DType::tf32}) {
        EXPECT_EQ(dtype_named(name_of(dtype)), dtype) << name_of(dtype);
    }
    EXPECT_EQ(size_of(DType::fp8), 1);
    EXPECT_EQ(size_of(DType::tf32), 4);
    EXPECT_EQ(size_of(DType::int64), 8);
    EXPECT_EQ(size_of(DType::fp4), 1);  // a byte holds two values
    EXPECT_FALSE(dtype_named("fp6").has_value());
}

TEST(Catalogue, ConcurrentReadersGetEqualProfiles) {
    std::vector<DeviceProfile> devices(8);
    std::vector<ClusterSpec> clusters(8);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < devices.size(); ++i) {
        threads.emplace_back([&, i] {
            devices[i] = load_device(i % 2 == 0 ? "gb200" : "l40s");
            clusters[i] = load_cluster(i % 2 == 0 ? "gb200-nvl72" : "pcie-l40s", 1);
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::size_t i = 2; i < devices.size(); ++i) {
        EXPECT_EQ(devices[i], devices[i - 2]);
        EXPECT_EQ(clusters[i], clusters[i - 2]);
        EXPECT_EQ(clusters[i].device, devices[i]);
    }
    EXPECT_THROW((void)load_device("nowhere"), InputError);  // and failures are not cached
    EXPECT_THROW((void)load_device("nowhere"), InputError);
}

}  // namespace
}  // namespace orrery::topologies
