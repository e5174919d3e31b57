#include "topologies/cluster_variant.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/error.h"
#include "tests/unit/core/test_folder.h"
#include "topologies/catalogue.h"
#include "topologies/cluster.h"

namespace orrery::topologies {
namespace {

std::string message_of(const ClusterVariant& variant, std::int64_t devices) {
    try {
        (void)make_cluster(variant, devices);
    } catch (const InputError& error) {
        return error.what();
    }
    return "";
}

TEST(Variant, WithoutChangesIsTheBase) {
    for (const char* base : {"dgx-a100", "dgx2-v100", "gb200-nvl72"}) {
        const std::int64_t devices = 2 * load_cluster(base, 1).devices_per_node;
        EXPECT_EQ(make_cluster({.base = base}, devices), load_cluster(base, devices)) << base;
    }
    // Naming the base's own parts changes nothing either.
    EXPECT_EQ(
        make_cluster({.base = "dgx-a100", .device = "a100-sxm-80gb", .nic = "infiniband-hdr", .nics_per_node = 8}, 16),
        load_cluster("dgx-a100", 16));
}

/// Jean Zay's A100 nodes (BigScience): 8 A100 80GB, four Omni-Path NICs.
TEST(Variant, ChangesDeviceNicsAndTheirKind) {
    const ClusterSpec base = load_cluster("dgx-a100", 384);
    const ClusterSpec jean_zay = make_cluster({.base = "dgx-a100", .nic = "omnipath-100", .nics_per_node = 4}, 384);
    EXPECT_EQ(jean_zay.nodes, 48);
    EXPECT_EQ(jean_zay.name, "dgx-a100[nics_per_node=4,nic=omnipath-100]");
    EXPECT_EQ(jean_zay.nic, load_link("omnipath-100"));
    EXPECT_EQ(jean_zay.nics_per_node, 4);
    EXPECT_EQ(jean_zay.device, base.device);
    EXPECT_EQ(jean_zay.host_memory_gib, base.host_memory_gib);
    const Cluster cluster(jean_zay);
    EXPECT_EQ(cluster.rail_of(7), 3);
    EXPECT_DOUBLE_EQ(cluster.path(0, 8).effective_bandwidth.value(), 12.5e9 * 0.4);
    const ClusterSpec smaller = make_cluster({.base = "dgx-a100", .device = "a100-sxm-40gb", .nic = "roce-200"}, 16);
    EXPECT_EQ(smaller.device.memory_capacity_gib.value, 40);
    EXPECT_EQ(smaller.nics_per_node, 8);
}

/// The hardware of published runs.
TEST(Variant, ExpressesThePublishedHardware) {
    struct Row {
        ClusterVariant variant;
        std::int64_t devices;
        double node_gb_per_s;  // nominal, of all NICs of a node
    };
    for (const Row& row : {
             Row{{.base = "dgx1-v100", .nics_per_node = 1}, 64, 12.5},  // DLPerf
             Row{{.base = "dgx1-v100", .device = "v100-sxm-32gb"}, 64, 50},
             Row{{.base = "dgx2-v100"}, 512, 100},                                        // Megatron-LM 2020
             Row{{.base = "dgx-a100"}, 3072, 200},                                        // Selene
             Row{{.base = "dgx-a100", .nics_per_node = 1}, 256, 25},                      // Hagemann
             Row{{.base = "dgx-a100", .nic = "roce-200"}, 256, 200},                      // llm-foundry
             Row{{.base = "dgx-a100", .nic = "roce-100", .nics_per_node = 4}, 1024, 50},  // InternEvo
             Row{{.base = "dgx-a100", .nics_per_node = 4}, 512, 100},                     // vTrain
             Row{{.base = "aws-p5"}, 512, 400},                                           // nanotron
             Row{{.base = "dgx-h100"}, 2048, 400},                                        // DGX Cloud
             Row{{.base = "gb200-nvl72", .devices_per_node = 64}, 256, 3200},             // Megatron-Bridge
         }) {
        const ClusterSpec cluster = make_cluster(row.variant, row.devices);
        EXPECT_EQ(cluster.device_count(), row.devices) << cluster.name;
        EXPECT_DOUBLE_EQ(
            static_cast<double>(cluster.nics_per_node) * cluster.nic.bandwidth_gb_per_s_per_direction.value,
            row.node_gb_per_s)
            << cluster.name;
        EXPECT_EQ(Cluster(cluster).device_count(), row.devices);
        EXPECT_EQ(cluster_from_json_text(to_json_text(cluster), "round trip"), cluster);
    }
}

TEST(Variant, ADifferentNumberOfDevicesScalesNicsAndHostMemory) {
    const ClusterSpec half = make_cluster({.base = "dgx-a100", .devices_per_node = 4}, 8);
    EXPECT_EQ(half.nodes, 2);
    EXPECT_EQ(half.nics_per_node, 4);
    EXPECT_EQ(half.host_memory_gib.value, 1024);
    EXPECT_DOUBLE_EQ(half.host_memory_bandwidth_gb_per_s.value, 204.8);
    EXPECT_EQ(half.host_memory_gib.kind, Provenance::fallback);
    EXPECT_TRUE(half.host_memory_gib.source.starts_with("assumption"));
    EXPECT_EQ(half.devices_per_host_link, 2);
    EXPECT_EQ(make_cluster({.base = "dgx2-v100", .devices_per_node = 4}, 8).nics_per_node, 2);
    EXPECT_EQ(make_cluster({.base = "dgx2-v100", .devices_per_node = 2}, 8).devices_per_host_link, 2);
    EXPECT_EQ(make_cluster({.base = "dgx1-v100", .devices_per_node = 2}, 4).nics_per_node, 1);
}

TEST(Variant, OtherDeviceCountsOrLinksReplaceAMeshByASwitch) {
    // The same GPU with more memory keeps the mesh.
    EXPECT_EQ(make_cluster({.base = "dgx1-v100", .device = "v100-sxm-32gb"}, 8).inside.nvlink_pairs.size(), 16U);
    for (const ClusterVariant& variant : {ClusterVariant{.base = "dgx1-v100", .devices_per_node = 4},
                                          ClusterVariant{.base = "dgx1-v100", .intra_node = "pcie-gen3-x16"}}) {
        const ClusterSpec other = make_cluster(variant, 4);
        EXPECT_TRUE(other.inside.nvlink_pairs.empty());
        EXPECT_EQ(other.node_switches, 1);
        EXPECT_NO_THROW(Cluster{other});
    }
}

TEST(Variant, ErrorsNameTheWrongMember) {
    struct Case {
        ClusterVariant variant;
        const char* first;
        const char* second;
    };
    for (const Case& bad : {
             Case{{.base = "dgx-a10"}, "dgx-a10", "did you mean 'dgx-a100'?"},
             Case{{.base = "dgx-a100", .device = "h100-sxm-80gb"}, "device", "a100-sxm-40gb, a100-sxm-80gb"},
             Case{{.base = "dgx-a100", .device = "a1000"}, "device", "a100-sxm-40gb"},
             Case{{.base = "dgx-a100", .nic = "infiniband"}, "nic", "infiniband-hdr"},
             Case{{.base = "dgx-a100", .intra_node = "nvlink"}, "intra_node", "nvlink3"},
             Case{{.base = "dgx-a100", .host_link = "pcie"}, "host_link", "pcie-gen4-x16"},
             Case{{.base = "dgx-a100", .nics_per_node = 3}, "nics_per_node", "a divisor of the node's 8"},
             Case{{.base = "dgx-a100", .nics_per_node = 0}, "nics_per_node", "a divisor"},
             Case{{.base = "dgx-a100", .nics_per_node = 16}, "nics_per_node", "a divisor"},
             Case{{.base = "dgx-a100", .devices_per_node = 0}, "devices_per_node", "1 to 4096"},
             Case{{.base = "dgx-a100", .devices_per_node = 3, .nics_per_node = 2}, "nics_per_node", "the node's 3"},
             Case{{.base = "dgx-a100", .nodes_per_scalable_unit = 0}, "nodes_per_scalable_unit", "at least 1"},
         }) {
        const std::string message = message_of(bad.variant, 16);
        EXPECT_NE(message.find(bad.first), std::string::npos) << bad.first << ": " << message;
        EXPECT_NE(message.find(bad.second), std::string::npos) << bad.first << ": " << message;
    }
    EXPECT_NE(message_of({.base = "dgx-a100", .devices_per_node = 4}, 6).find("a multiple of the node's 4"),
              std::string::npos);
}

TEST(Variant, TheBaseMustBeAClusterOfGpus) {
    const TestFolder folder;
    const std::string path = folder.file("base.cluster.json");
    ClusterSpec single = load_cluster("dgx-a100", 8);
    single.nics_per_node = 0;
    single.fabric = FabricKind::none;
    single.fabric_shape = {};
    std::ofstream(path) << to_json_text(single);
    EXPECT_EQ(make_cluster({.base = path, .device = "a100-sxm-40gb"}, 8).nics_per_node, 0);
    EXPECT_NE(message_of({.base = path, .nics_per_node = 4}, 8).find("has no fabric"), std::string::npos);
    EXPECT_NE(message_of({.base = path, .nic = "efa-100"}, 8).find("nic: got 'efa-100'"), std::string::npos);
    ClusterSpec cpu = single;
    cpu.device.host_runs_compute = true;
    cpu.device.cores_per_node = 8;
    std::ofstream(path) << to_json_text(cpu);
    EXPECT_NE(message_of({.base = path, .devices_per_node = 2}, 2).find("allowed: a cluster of GPUs"),
              std::string::npos);
}

}  // namespace
}  // namespace orrery::topologies
