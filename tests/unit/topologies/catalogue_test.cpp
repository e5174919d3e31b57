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
    EXPECT_EQ(device_names().size(), 11U);
}

TEST(Catalogue, RingsAreOfTheNodesPartsInOrder) {
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
    EXPECT_PRED2(says, refused(whole, without_node.dump()), "the last is within the node");
}

/// Volta's matrix units take fp16 alone; bf16 and tf32 came with Ampere, fp8 with Hopper. On matrix units the rate
/// doubles as the element halves.
TEST(Catalogue, PeaksFollowTheGeneration) {
    for (const std::string& name : device_names()) {
        const DeviceProfile device = load_device(name);
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
            // L40S is sold with 183, 362 and 733.
            EXPECT_NEAR(device.peak_flops_per_s(DType::fp16) / device.peak_flops_per_s(DType::tf32), 2, 0.03) << name;
        }
        if (has(DType::fp8)) {
            EXPECT_NEAR(device.peak_flops_per_s(DType::fp8) / device.peak_flops_per_s(DType::bf16), 2, 0.03) << name;
        }
    }
}

TEST(Catalogue, LinksCarryTheirNominalBandwidthPerDirection) {
    const std::map<std::string, double> expected{
        {"efa-100", 12.5},          {"efa-400", 50},
        {"infiniband-edr", 12.5},   {"infiniband-hdr", 25},
        {"infiniband-ndr", 50},     {"nvlink-c2c", 450},
        {"nvlink2", 150},           {"nvlink3", 300},
        {"nvlink4", 450},           {"nvlink5", 900},
        {"omnipath-100", 12.5},     {"pcie-gen3-x16", 16},
        {"pcie-gen4-x16", 31},      {"pcie-gen5-x16", 63},
        {"roce-100", 12.5},         {"roce-200", 25},
        {"roce-400", 50},           {"nvlink-400", 200},
        {"efa-v4-400", 50},         {"infiniband-xdr", 100},
        {"gpudirect-tcpx-200", 25}, {"gpudirect-tcpxo-200", 25},
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

TEST(Catalogue, EveryDeviceHasAPreset) {
    std::set<std::string> used;
    for (const std::string& name : preset_names()) {
        if (name != "local") used.insert(load_cluster(name, 1).device.name);
    }
    for (const std::string& name : device_names()) EXPECT_TRUE(used.contains(name)) << name;
}

TEST(Catalogue, AnUnknownNameIsAnsweredWithTheKnownOnes) {
    try {
        (void)load_device("h100-sxm-80g");
        FAIL();
    } catch (const InputError& error) {
        const std::string message = error.what();
        EXPECT_NE(message.find("did you mean 'h100-sxm-80gb'?"), std::string::npos) << message;
        EXPECT_NE(message.find("v100-sxm-32gb"), std::string::npos) << message;
    }
    EXPECT_THROW((void)load_link(""), InputError);
    EXPECT_THROW((void)load_link("nvlink"), InputError);
}

TEST(DTypes, NamesAndSizesOfTheTypesOfArithmetic) {
    for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16, DType::fp16, DType::int64, DType::int32,
                              DType::uint8, DType::fp8, DType::tf32}) {
        EXPECT_EQ(dtype_named(name_of(dtype)), dtype) << name_of(dtype);
    }
    EXPECT_EQ(size_of(DType::fp8), 1);
    EXPECT_EQ(size_of(DType::tf32), 4);
    EXPECT_EQ(size_of(DType::int64), 8);
    EXPECT_FALSE(dtype_named("fp4").has_value());
}

TEST(Catalogue, ThreadsReadTheSame) {
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
    EXPECT_THROW((void)load_device("nowhere"), InputError);  // and what could not be read is not kept
    EXPECT_THROW((void)load_device("nowhere"), InputError);
}

}  // namespace
}  // namespace orrery::topologies
