#include "topologies/cluster_spec.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"

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
    c.device.matmul_samples = {{"linear_forward", 64, 128, 256, 1.5e-5}};
    c.device.operator_samples = {{"attention_forward", 4096, 1e6, 32, 64, 128, 2e-4}};
    c.intra_node = {"shared-memory", figure(5.0), figure(0.5), figure(1.0)};
    c.transport_samples = {{"all_reduce", 2, 1024, 3e-6}, {"send", 2, 0, 1e-6}};
    return c;
}

std::string message_of(const std::string& text) {
    try {
        (void)cluster_from_json_text(text, "test.json");
    } catch (const InputError& error) {
        return error.what();
    }
    return "";
}

TEST(Presets, AreListedWithLocal) {
    const std::vector<std::string> names = preset_names();
    EXPECT_EQ(names, (std::vector<std::string>{"dgx-a100", "dgx-h100", "local"}));
}

TEST(Presets, CarryTheFiguresPerDirection) {
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
    for (const std::string name : {"dgx-a100", "dgx-h100"}) {
        const Json root = Json::parse(to_json_text(load_cluster(name, 8)));
        int figures = 0;
        const std::function<void(const Json&)> visit = [&](const Json& node) {
            if (node.is_object() && node.contains("kind")) {
                ++figures;
                EXPECT_EQ(node["kind"] == "fallback", node["source"].get<std::string>().starts_with("assumption"))
                    << name << ": " << node.dump();
            }
            for (const Json& child : node) {
                if (child.is_structured()) visit(child);
            }
        };
        visit(root);
        EXPECT_EQ(figures, 21) << name;
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

TEST(Presets, AnUnknownNameIsAnsweredWithTheKnownOnes) {
    try {
        (void)load_cluster("dgx-h10", 8);
        FAIL();
    } catch (const InputError& error) {
        const std::string message = error.what();
        EXPECT_NE(message.find("did you mean 'dgx-h100'?"), std::string::npos) << message;
        EXPECT_NE(message.find("dgx-a100, dgx-h100, local"), std::string::npos) << message;
    }
}

TEST(DeviceProfile, APeakThatItLacksIsAnInputError) {
    const ClusterSpec h100 = load_cluster("dgx-h100", 8);
    EXPECT_THROW((void)h100.device.peak_flops_per_s(DType::int32), InputError);
}

TEST(ClusterJson, RoundTripsExactly) {
    for (const ClusterSpec& cluster : {load_cluster("dgx-a100", 8), load_cluster("dgx-h100", 1024), cpu_cluster()}) {
        const std::string text = to_json_text(cluster);
        const ClusterSpec again = cluster_from_json_text(text, "round trip");
        EXPECT_EQ(again, cluster) << cluster.name;
        EXPECT_EQ(to_json_text(again), text);
    }
}

TEST(ClusterJson, RefusesWhatIsWrongAndNamesIt) {
    const Json good = Json::parse(to_json_text(load_cluster("dgx-h100", 16)));
    ASSERT_EQ(message_of(good.dump()), "");
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
             Case{"/fabric", "torus", "rail_optimised"},
             Case{"/fabric", "none", "nodes"},
             Case{"/nics_per_node", 3, "nics_per_node"},
             Case{"/nics_per_node", 0, "fabric"},
             Case{"/nodes_per_scalable_unit", 0, "nodes_per_scalable_unit"},
             Case{"/transport_samples",
                  Json::array({Json{{"op", "gossip"}, {"ranks", 2}, {"bytes", 1}, {"seconds", 1}}}), "\"all_gather\""},
         }) {
        Json json = good;
        json[Json::json_pointer(bad.pointer)] = bad.value;
        const std::string message = message_of(json.dump());
        EXPECT_NE(message.find(bad.expected), std::string::npos) << bad.pointer << ": " << message;
        EXPECT_NE(message.find("test.json"), std::string::npos) << message;
    }
    for (const char* key : {"name", "device", "intra_node", "nic", "host_link", "low_latency_gb_per_s", "fabric"}) {
        Json json = good;
        json.erase(key);
        EXPECT_NE(message_of(json.dump()).find(key), std::string::npos) << key;
    }
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
    const std::filesystem::path path =
        std::filesystem::path(testing::TempDir()) / ("local-" + std::to_string(getpid()) + ".cluster.json");
    std::ofstream(path) << to_json_text(cpu_cluster());
    {
        const Environment profile("ORRERY_PROFILE", path.string());
        EXPECT_EQ(load_cluster("local", 8), cpu_cluster());
    }
    EXPECT_EQ(load_cluster(path.string(), 8), cpu_cluster());
    std::filesystem::remove(path);
}

/// The part of JSON Schema that our schema uses, so that schema and reader cannot drift apart.
void expect_valid(const Json& schema, const Json& root, const Json& value, const std::string& where) {
    if (schema.contains("$ref")) {
        const std::string ref = schema["$ref"].get<std::string>().substr(1);
        expect_valid(root[Json::json_pointer(ref)], root, value, where);
        return;
    }
    if (schema.contains("const")) {
        EXPECT_EQ(schema["const"], value) << where;
    }
    if (schema.contains("enum")) {
        EXPECT_NE(std::find(schema["enum"].begin(), schema["enum"].end(), value), schema["enum"].end()) << where;
    }
    if (!schema.contains("type")) return;
    const std::string type = schema["type"];
    EXPECT_TRUE((type == "object" && value.is_object()) || (type == "array" && value.is_array()) ||
                (type == "string" && value.is_string()) || (type == "boolean" && value.is_boolean()) ||
                (type == "integer" && value.is_number_integer()) || (type == "number" && value.is_number()))
        << where << " is not of type " << type;
    if (type == "object") {
        ASSERT_EQ(schema["additionalProperties"], false) << where;
        for (const auto& [key, child] : value.items()) {
            ASSERT_TRUE(schema["properties"].contains(key)) << where << "/" << key;
            expect_valid(schema["properties"][key], root, child, where + "/" + key);
        }
        for (const auto& key : schema.value("required", Json::array())) {
            EXPECT_TRUE(value.contains(key.get<std::string>())) << where << " lacks " << key;
        }
    }
    if (type == "array") {
        for (const auto& item : value) expect_valid(schema["items"], root, item, where + "/-");
    }
}

TEST(ClusterJson, WhatIsWrittenAgreesWithTheSchema) {
    std::ifstream file(std::string(ORRERY_SOURCE_DIR) + "/docs/schema/orrery.cluster.1.schema.json");
    ASSERT_TRUE(file.good());
    const Json schema = Json::parse(file);
    for (const ClusterSpec& cluster : {load_cluster("dgx-a100", 8), load_cluster("dgx-h100", 16), cpu_cluster()}) {
        const Json json = Json::parse(to_json_text(cluster));
        expect_valid(schema, schema, json, cluster.name);
        for (const auto& key : schema["required"]) {
            Json without = json;
            without.erase(key.get<std::string>());
            EXPECT_NE(message_of(without.dump()), "") << "the reader does without " << key;
        }
    }
}

}  // namespace
}  // namespace orrery::topologies
