#include "topologies/cluster_spec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "tests/house/json_schema.h"
#include "tests/unit/core/test_folder.h"
#include "tests/unit/topologies/cluster_messages.h"
#include "topologies/catalogue.h"

namespace orrery::topologies {
namespace {

using Json = nlohmann::ordered_json;

/// Sets or unsets an environment variable and restores it.
class Environment {
  public:
    Environment(std::string name, const std::optional<std::string>& value) : name_(std::move(name)) {
        if (const char* old = std::getenv(name_.c_str())) old_ = old;
        set(value);
    }
    ~Environment() { set(old_); }
    Environment(const Environment&) = delete;
    Environment& operator=(const Environment&) = delete;

  private:
    void set(const std::optional<std::string>& value) const {
        if (value) {
            setenv(name_.c_str(), value->c_str(), 1);
        } else {
            unsetenv(name_.c_str());
        }
    }
    std::string name_;
    std::optional<std::string> old_;
};

ClusterSpec cpu_cluster() {
    const auto figure = [](double value) { return Figure{value, Provenance::measured, "this test"}; };
    ClusterSpec c;
    c.name = "local";
    c.source = "made by a test";
    c.devices_per_node = 2;
    c.device.name = "cpu-core";
    c.device.peaks = {{DType::fp32, figure(0.1)}, {DType::fp64, figure(0.05)}};
    c.device.memory_bandwidth_gb_per_s = figure(10.25);
    c.device.memory_capacity_gib = figure(1.0 / 3.0);
    c.device.context_gib = figure(0.03);
    c.device.matmul_efficiency = figure(0.9);
    c.device.memory_efficiency = figure(1.0);
    c.device.launch_us = figure(0.0);
    c.device.host_runs_compute = true;
    c.device.cores_per_node = 2;
    c.device.matmul_samples = {{"linear_forward", 64, 128, 256, 1.5e-5},
                               {.op = "linear_forward", .m = 64, .n = 1, .k = 2, .seconds = 1e-5, .bias = true}};
    c.device.operator_samples = {{"attention_forward", 4096, 1e6, 32, 64, 128, 2e-4},
                                 {.op = "any", .seconds = 1, .n = 1, .k = 2, .heads = 3, .kv_heads = 4, .elements = 5}};
    c.intra_node = {"shared-memory", LinkMedium::shared_memory, figure(5.0), figure(0.5), figure(1.0)};
    c.transport_samples = {{"all_reduce", 2, 1024, 3e-6}, {"send", 2, 0, 1e-6}};
    return c;
}

std::vector<std::string> gpu_presets() {
    std::vector<std::string> names = preset_names();
    names.erase(std::find(names.begin(), names.end(), "local"));
    return names;
}

TEST(Presets, AreListedWithLocal) {
    const std::vector<std::string> names = preset_names();
    EXPECT_EQ(names, (std::vector<std::string>{"aws-g5",
                                               "aws-p4d",
                                               "aws-p5",
                                               "aws-p5en",
                                               "aws-p6-b200",
                                               "dgx-a100",
                                               "dgx-a100-40gb",
                                               "dgx-b200",
                                               "dgx-b300",
                                               "dgx-h100",
                                               "dgx1-v100",
                                               "dgx2-v100",
                                               "gb200-nvl72",
                                               "gb300-nvl72",
                                               "gh200-4",
                                               "grand-teton-h100",
                                               "hgx-b200",
                                               "hgx-h100",
                                               "hgx-h100-one-switch",
                                               "hgx-h200",
                                               "local",
                                               "mi300x-8",
                                               "mi355x-8",
                                               "pcie-a40",
                                               "pcie-l40s",
                                               "pcie-rtx-4090",
                                               "pcie-rtx-5090",
                                               "pcie-rtx-pro-6000",
                                               "pcie-t4"}));
}

TEST(Presets, BandwidthsArePerDirection) {
    const ClusterSpec a100 = load_cluster("dgx-a100", 8);
    EXPECT_EQ(a100.intra_node.bandwidth_gb_per_s_per_direction.value, 300);
    EXPECT_EQ(a100.nic.bandwidth_gb_per_s_per_direction.value, 25);
    EXPECT_EQ(a100.node_switches, 6);
    EXPECT_EQ(a100.device.compute_units, 108);
    EXPECT_EQ(a100.device.peak_flops_per_s(DType::bf16), 312e12);
    const ClusterSpec h100 = load_cluster("dgx-h100", 8);
    EXPECT_EQ(h100.intra_node.bandwidth_gb_per_s_per_direction.value, 450);
    EXPECT_EQ(h100.nic.bandwidth_gb_per_s_per_direction.value, 50);
    EXPECT_EQ(h100.host_link.bandwidth_gb_per_s_per_direction.value, 63);
    EXPECT_EQ(h100.node_switches, 4);
    EXPECT_EQ(h100.nics_per_node, 8);
    EXPECT_EQ(h100.device.compute_units, 132);
    EXPECT_EQ(h100.device.peak_flops_per_s(DType::bf16), 989e12);
    EXPECT_EQ(h100.device.memory_capacity_gib.value, 80);
    EXPECT_FALSE(h100.ranks_may_share_devices());
}

TEST(Presets, AFallbackFigureSaysThatItIsAnAssumption) {
    for (const std::string& name : gpu_presets()) {
        const Json root = Json::parse(to_json_text(load_cluster(name, 8)));
        std::size_t figures = 0;
        const std::function<void(const Json&)> visit = [&](const Json& node) {
            if (node.is_object() && node.contains("value")) {
                ++figures;
                EXPECT_EQ(node["kind"] == "fallback", node["source"].get<std::string>().starts_with("assumption"))
                    << name << ": " << node.dump();
            }
            for (const Json& child : node) {
                if (child.is_structured()) visit(child);
            }
        };
        visit(root);
        // At least: 6 of the device besides its peaks, 3 of the link inside the node, 3 LL limits.
        EXPECT_GE(figures, 6 + root["device"]["peak_tflops"].size() + 3 + 3) << name;
    }
}

TEST(Presets, AreSizedByWholeNodes) {
    for (const auto& [devices, nodes] :
         std::map<std::int64_t, std::int64_t>{{1, 1}, {5, 1}, {8, 1}, {16, 2}, {512, 64}, {16384, 2048}}) {
        const ClusterSpec cluster = load_cluster("dgx-h100", devices);
        EXPECT_EQ(cluster.nodes, nodes) << devices;
        EXPECT_EQ(cluster.devices_per_node, 8);
    }
    for (const std::int64_t devices : {0, -8, 9, 12, 20, 1 << 21}) {
        try {
            (void)load_cluster("dgx-h100", devices);
            ADD_FAILURE() << devices << " devices were accepted";
        } catch (const InputError& error) {
            EXPECT_NE(std::string(error.what()).find("devices: got " + std::to_string(devices)), std::string::npos)
                << error.what();
        }
    }
}

TEST(Presets, AnUnknownNameListsTheKnownOnes) {
    try {
        (void)load_cluster("dgx-h10", 8);
        FAIL();
    } catch (const InputError& error) {
        const std::string message = error.what();
        EXPECT_NE(message.find("did you mean 'dgx-h100'?"), std::string::npos) << message;
        EXPECT_NE(message.find("dgx-a100, dgx-a100-40gb"), std::string::npos) << message;
    }
}

TEST(DeviceProfile, AMissingPeakIsAnInputError) {
    const ClusterSpec h100 = load_cluster("dgx-h100", 8);
    EXPECT_THROW((void)h100.device.peak_flops_per_s(DType::int32), InputError);
}

TEST(ClusterJson, RoundTripsExactly) {
    std::vector<ClusterSpec> clusters{load_cluster("dgx-h100", 1024), cpu_cluster()};
    for (const std::string& name : gpu_presets()) clusters.push_back(load_cluster(name, 1));
    for (const ClusterSpec& cluster : clusters) {
        const std::string text = to_json_text(cluster);
        const ClusterSpec again = cluster_from_json_text(text, "round trip");
        EXPECT_EQ(again, cluster) << cluster.name;
        EXPECT_EQ(to_json_text(again), text);
    }
}

TEST(ClusterJson, ErrorsNameTheWrongKey) {
    const Json good = Json::parse(to_json_text(load_cluster("dgx-h100", 16)));
    ASSERT_EQ(refusal_of(good.dump()), "");
    struct Case {
        const char* pointer;
        Json value;
        const char* expected;
    };
    for (const Case& bad : {
             Case{"/nodez", 1, "nodez"},
             Case{"/nodes", 0, "nodes"},
             Case{"/nodes", 2.5, "nodes"},
             Case{"/schema", "orrery.cluster/2", "orrery.cluster/1"},
             Case{"/intra_node/bandwidth_gb_per_s_per_direction/value", 0, "bandwidth_gb_per_s_per_direction"},
             Case{"/nic/efficiency/value", 1.5, "efficiency"},
             Case{"/nic/latency_us/kind", "guessed", "\"measured\", \"datasheet\""},
             Case{"/nic/latency_us/source", "", "source"},
             Case{"/nic/latency_us", 0.5, "latency_us"},
             Case{"/device/peak_tflops/bf17", Json{{"value", 1}, {"kind", "measured"}, {"source", "x"}}, "bf17"},
             Case{"/device/peak_tflops", Json::object(), "peak_tflops"},
             Case{"/device/compute_units", 0, "compute_units"},
             Case{"/device/compute_capability", 0, "compute_capability"},
             Case{"/device", "h1000-sxm-80gb", "h100-sxm-80gb"},
             Case{"/device", 3, "device"},
             Case{"/nic", "infiniband-nrd", "infiniband-ndr"},
             Case{"/host_memory_link", "pcie", "pcie-gen5-x16"},
             Case{"/devices_per_host_link", 3, "devices_per_host_link"},
             Case{"/devices_per_host_link", 16, "devices_per_host_link"},
             Case{"/host_memory_gib", Json{{"value", 0}, {"kind", "measured"}, {"source", "x"}}, "host_memory_gib"},
             Case{"/host_memory_bandwidth_gb_per_s", 600, "host_memory_bandwidth_gb_per_s"},
             Case{"/fabric", "ring", "rail_optimised"},
             Case{"/fabric", "fat_tree", "fabric_shape"},
             Case{"/fabric", "none", "fabric_shape"},
             Case{"/nics_per_node", 3, "nics_per_node"},
             Case{"/nics_per_node", 0, "fabric"},
             Case{"/nodes_per_scalable_unit", 0, "nodes_per_scalable_unit"},
             Case{"/transport_samples",
                  Json::array({Json{{"op", "gossip"}, {"ranks", 2}, {"bytes", 1}, {"seconds", 1}}}), "\"all_gather\""},
         }) {
        Json json = good;
        json[Json::json_pointer(bad.pointer)] = bad.value;
        const std::string message = refusal_of(json.dump());
        EXPECT_NE(message.find(bad.expected), std::string::npos) << bad.pointer << ": " << message;
        EXPECT_NE(message.find("test.json"), std::string::npos) << message;
    }
    for (const char* key : {"name", "device", "intra_node", "nic", "host_link", "low_latency_gb_per_s", "fabric"}) {
        Json json = good;
        json.erase(key);
        EXPECT_NE(refusal_of(json.dump()).find(key), std::string::npos) << key;
    }
}

TEST(ClusterJson, AFileMayNameItsDeviceAndLinks) {
    Json named = Json::parse(to_json_text(load_cluster("dgx-a100", 8)));
    const ClusterSpec in_full = cluster_from_json_text(named.dump(), "in full");
    named["device"] = "a100-sxm-80gb";
    named["intra_node"] = "nvlink3";
    named["nic"] = "infiniband-hdr";
    named["host_link"] = "pcie-gen4-x16";
    EXPECT_EQ(cluster_from_json_text(named.dump(), "named"), in_full);
}

TEST(ClusterJson, TheKindOfALinkDoesNotDependOnItsName) {
    Json json = Json::parse(to_json_text(load_cluster("dgx-a100", 8)));
    const auto kind = [&](const char* name, const char* said) {
        json["intra_node"]["name"] = name;
        json["intra_node"].erase("kind");
        if (said != nullptr) json["intra_node"]["kind"] = said;
        return cluster_from_json_text(json.dump(), "links").intra_node.kind;
    };
    EXPECT_EQ(kind("my-bus", "pcie"), LinkMedium::pcie);
    EXPECT_EQ(kind("pcie-like", "nvlink"), LinkMedium::nvlink);
    for (const std::string& name : link_medium_names()) {
        EXPECT_EQ(name_of(kind("my-bus", name.c_str())), name);
    }
}

/// Plans and cluster files hold links in full, and some were written before links had a `kind`.
TEST(ClusterJson, WithoutAKindItFollowsFromTheName) {
    for (const std::string& name : link_names()) {
        Json json = Json::parse(to_json_text(load_cluster("dgx-a100", 8)));
        json["intra_node"]["name"] = name;
        json["intra_node"].erase("kind");
        const LinkMedium kind = cluster_from_json_text(json.dump(), "old").intra_node.kind;
        const LinkMedium own = load_link(name).kind;
        EXPECT_NE(own, LinkMedium::other) << name;
        EXPECT_EQ(kind, own == LinkMedium::ethernet ? LinkMedium::other : own) << name;
    }
    Json json = Json::parse(to_json_text(load_cluster("dgx-a100", 8)));
    json["intra_node"].erase("kind");
    json["intra_node"]["name"] = "my-bus";
    EXPECT_EQ(cluster_from_json_text(json.dump(), "old").intra_node.kind, LinkMedium::other);
}

TEST(ClusterJson, FiguresOfTheHostAreOptional) {
    Json json = Json::parse(to_json_text(load_cluster("dgx-a100", 8)));
    for (const char* key : {"host_memory_bandwidth_gb_per_s", "host_memory_gib", "devices_per_host_link"})
        json.erase(key);
    json["device"].erase("compute_capability");
    const ClusterSpec cluster = cluster_from_json_text(json.dump(), "old");
    EXPECT_EQ(cluster.devices_per_host_link, 1);
    EXPECT_EQ(cluster.host_memory_gib, Figure{});
    EXPECT_EQ(cluster.device.compute_capability, 0);
    EXPECT_EQ(to_json_text(cluster).find("host_memory"), std::string::npos);
}

TEST(HostCopy, IsTheLeastOfLinkSharersAndHostMemory) {
    // DGX A100: PCIe Gen4 31 * 0.88 = 27.28 GB/s, halved between the two GPUs of a switch; 409.6 GB/s of host memory.
    const ClusterSpec a100 = load_cluster("dgx-a100", 8);
    EXPECT_DOUBLE_EQ(host_copy_bandwidth(a100, 1).value(), 27.28e9);
    EXPECT_DOUBLE_EQ(host_copy_bandwidth(a100, 2).value(), 13.64e9);
    EXPECT_DOUBLE_EQ(host_copy_bandwidth(a100, 8).value(), 13.64e9);
    // DGX-2: 12 GB/s for one GPU, 3 for each of 16, as reported by ZeRO-Infinity (arXiv 2104.07857).
    EXPECT_DOUBLE_EQ(host_copy_bandwidth(load_cluster("dgx2-v100", 16), 1).value(), 12e9);
    EXPECT_DOUBLE_EQ(host_copy_bandwidth(load_cluster("dgx2-v100", 16), 16).value(), 3e9);
    // GB200: over NVLink-C2C, 450 * 0.83 = 373.5 GB/s, not over the NIC's PCIe. Two GPUs share it; with 72 GPUs each
    // may use 14,000 / 72 GB/s of host memory.
    const ClusterSpec gb200 = load_cluster("gb200-nvl72", 72);
    EXPECT_DOUBLE_EQ(host_copy_bandwidth(gb200, 1).value(), 373.5e9);
    EXPECT_DOUBLE_EQ(host_copy_bandwidth(gb200, 2).value(), 186.75e9);
    ClusterSpec slow_memory = gb200;
    slow_memory.host_memory_bandwidth_gb_per_s.value = 720;
    EXPECT_DOUBLE_EQ(host_copy_bandwidth(slow_memory, 72).value(), 10e9);
    slow_memory.host_memory_bandwidth_gb_per_s = {};
    EXPECT_DOUBLE_EQ(host_copy_bandwidth(slow_memory, 72).value(), 186.75e9);
    EXPECT_THROW((void)host_copy_bandwidth(cpu_cluster(), 1), InputError);
    EXPECT_THROW((void)host_copy_bandwidth(a100, 9), BugError);
    EXPECT_THROW((void)host_copy_bandwidth(a100, 0), BugError);
}

TEST(Local, ProfilePathFollowsTheEnvironment) {
    const Environment profile("ORRERY_PROFILE", "/p/mine.json");
    const Environment cache("XDG_CACHE_HOME", "/cache");
    const Environment home("HOME", "/home/me");
    EXPECT_EQ(local_profile_path(), "/p/mine.json");
    const Environment no_profile("ORRERY_PROFILE", std::nullopt);
    EXPECT_EQ(local_profile_path(), "/cache/orrery/local.cluster.json");
    const Environment empty_cache("XDG_CACHE_HOME", "");
    EXPECT_EQ(local_profile_path(), "/home/me/.cache/orrery/local.cluster.json");
    const Environment no_home("HOME", std::nullopt);
    EXPECT_THROW((void)local_profile_path(), InputError);
}

TEST(Local, AMissingProfileAsksForCalibration) {
    const Environment profile("ORRERY_PROFILE", "/nowhere/at/all.json");
    try {
        (void)load_cluster("local", 2);
        FAIL();
    } catch (const InputError& error) {
        EXPECT_NE(std::string(error.what()).find("orrery calibrate"), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("/nowhere/at/all.json"), std::string::npos) << error.what();
    }
}

TEST(Local, ReadsTheProfileAndLetsRanksShareCores) {
    const TestFolder folder;
    const std::string path = folder.file("local.cluster.json");
    std::ofstream(path) << to_json_text(cpu_cluster());
    {
        const Environment profile("ORRERY_PROFILE", path);
        EXPECT_EQ(load_cluster("local", 8), cpu_cluster());
    }
    EXPECT_EQ(load_cluster(path, 8), cpu_cluster());
}

TEST(ClusterJson, WrittenFilesConformToTheSchema) {
    const house::SchemaSet schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    std::vector<ClusterSpec> clusters{load_cluster("dgx-h100", 16), cpu_cluster()};
    for (const std::string& name : gpu_presets()) clusters.push_back(load_cluster(name, 1));
    const auto required = schemas.files().at("orrery.cluster.1.schema.json").at("required");
    for (const ClusterSpec& cluster : clusters) {
        const Json json = Json::parse(to_json_text(cluster));
        EXPECT_EQ(schemas.check(json.dump()), "") << cluster.name;
        EXPECT_TRUE(json["device"].is_object() && json["intra_node"].is_object()) << cluster.name;
        for (const auto& key : required) {
            Json without = json;
            without.erase(key.get<std::string>());
            EXPECT_NE(refusal_of(without.dump()), "") << "the reader accepts a file without " << key;
        }
    }
}

}  // namespace
}  // namespace orrery::topologies
