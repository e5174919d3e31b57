// Cluster files with all keys: the example of docs/clusters.md, writing, and refusals.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.h"
#include "tests/house/json_schema.h"
#include "tests/unit/topologies/cluster_messages.h"
#include "tests/unit/topologies/fabric_clusters.h"

namespace orrery::topologies {
namespace {

using Json = nlohmann::ordered_json;

std::string documented_example() {
    std::ifstream page(std::filesystem::path(ORRERY_SOURCE_DIR) / "docs" / "clusters.md");
    std::ostringstream text;
    text << page.rdbuf();
    const std::string opening = "```json\n";
    const std::size_t begin = text.str().find(opening), end = text.str().find("```", begin + opening.size());
    return text.str().substr(begin + opening.size(), end - begin - opening.size());
}

TEST(ClusterFile, TheDocumentedExampleLoadsAsDescribed) {
    const ClusterSpec spec = cluster_from_json_text(documented_example(), "docs/clusters.md");
    const Cluster cluster(spec);
    EXPECT_EQ(cluster.fabric().leaves(), 2);  // 30 ports down: 15 nodes of 2 NICs
    EXPECT_EQ(cluster.fabric().spines(), 10);
    EXPECT_EQ(cluster.profile_of(12 * 8).name, "a100-sxm-40gb");
    EXPECT_EQ(cluster.profile_of(12 * 8 - 1).name, "a100-sxm-80gb");
    // Behind one PCIe switch; across sockets: device, PCIe switch, CPU, CPU, PCIe switch, device.
    EXPECT_EQ(cluster.path(0, 3).hops, 2);
    const Path across = cluster.path(0, 4);
    EXPECT_EQ(across.hops, 5);
    EXPECT_EQ(across.bandwidth.value(), 22e9);
    EXPECT_EQ(cluster.path(0, 5 * 8).bandwidth.value(), 6.25e9);
    EXPECT_TRUE(
        cluster.link(*cluster.graph().link_between(cluster.fabric_switch(0), cluster.fabric_switch(2 + 3))).failed);
}

TEST(ClusterFile, EverythingIsWrittenAndReadBack) {
    const house::SchemaSet schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    std::vector<ClusterSpec> specs = test::every_fabric();
    specs.push_back(cluster_from_json_text(documented_example(), "docs/clusters.md"));
    specs.push_back(test::rails(FabricKind::rail_only, 4, 4));
    specs.back().overrides = {{"nic", 1, 2, 0.25}, {"leaf 0 - node 0 nic 0", -1, -1, 0}};
    specs.back().changes = {{0.5, {"trunk", -1, 3, 0.125}}, {2, {"leaf 0 - node 0 nic 0", -1, -1, 1}}};
    specs.back().routing = {Spread::destination, NicChoice::own};
    specs.back().node_switches = 0;
    specs.back().inside.nvlink_pairs = {{0, 1, 2}, {1, 2, 1}};
    for (const ClusterSpec& spec : specs) {
        const std::string text = to_json_text(spec);
        EXPECT_EQ(cluster_from_json_text(text, "again"), spec) << spec.name;
        EXPECT_EQ(schemas.check(text), "") << spec.name;
    }
}

TEST(ClusterFile, LinksChangeAtTheirTimes) {
    Json json = Json::parse(documented_example());
    json["overrides"] = Json::array({Json{{"link", "nic"}, {"node", 1}, {"bandwidth", 1}, {"at_seconds", 3}},
                                     Json{{"link", "trunk"}, {"bandwidth", 0.5}},
                                     Json{{"link", "nic"}, {"node", 1}, {"bandwidth", "failed"}, {"at_seconds", 2}},
                                     Json{{"link", "nic"}, {"node", 2}, {"bandwidth", 0.5}, {"at_seconds", 3}}});
    const ClusterSpec spec = cluster_from_json_text(json.dump(), "changes");
    EXPECT_EQ(spec.overrides.size(), 1U);
    EXPECT_EQ(change_times(spec), (std::vector<double>{2, 3}));
    EXPECT_EQ(cluster_at(spec, 1.9).overrides.size(), 1U);
    const ClusterSpec second = cluster_at(spec, 2), third = cluster_at(spec, 3);
    EXPECT_EQ(second.overrides.back(), (LinkOverride{"nic", 1, -1, 0}));
    EXPECT_TRUE(second.changes.empty());
    ASSERT_EQ(third.overrides.size(), 4U);
    EXPECT_EQ(third.overrides[2], (LinkOverride{"nic", 1, -1, 1}));
    const auto nic_of = [](const ClusterSpec& at, std::int64_t node) {
        const Cluster cluster(at);
        return cluster.links_from(cluster.nic(node, 0)).back();
    };
    EXPECT_TRUE(nic_of(second, 1).failed);
    EXPECT_FALSE(nic_of(third, 1).failed);
    EXPECT_EQ(nic_of(third, 2).bandwidth.value(), 0.5 * nic_of(second, 2).bandwidth.value());
}

TEST(ClusterFile, ErrorsNameTheKeyAndWhatIsAllowed) {
    const Json good = Json::parse(documented_example());
    ASSERT_EQ(refusal_of(good.dump()), "");
    struct Case {
        const char* pointer;
        Json value;
        const char* expected;
    };
    for (const Case& bad : {
             Case{"/fabric_shape/radx", 4, "radix"},
             Case{"/fabric_shape/radix", 1, "at least 2"},
             Case{"/fabric_shape/core_radix", 64, "only a fabric of kind rail_optimised"},
             Case{"/fabric_shape/levels", 4, "levels"},
             Case{"/fabric_shape/groups", 4, "only a fabric of kind dragonfly"},
             Case{"/fabric_shape/dimensions", Json::array({2, 2}), "only a fabric of kind torus"},
             Case{"/fabric_shape/nodes_per_leaf", 4, "the radix determines it"},
             Case{"/fabric_shape/core_trunk", "roce-100", "only a fat tree of 3 levels"},
             Case{"/fabric_shape/oversubscription", Json::array({0.5}), "oversubscription"},
             Case{"/fabric_shape/oversubscription", Json::array({1, 1, 1}), "one number"},
             Case{"/fabric_shape/trunk", "roce-1", "roce-100"},
             Case{"/inside/socket", 4, "sockets"},
             Case{"/inside/socket_link/kind", "upi", "\"nvlink\", \"infinity_fabric\", \"pcie\", \"socket\""},
             Case{"/inside/sockets", -1, "sockets"},
             Case{"/inside/nvlink_pairs", Json::array({Json{{"devices", {1}}}}), "two device numbers"},
             Case{"/routing/spread", "random", "\"source\", \"destination\", \"hash\""},
             Case{"/routing/nic", "rail", "\"own\", \"pxn\""},
             Case{"/overrides/0/bandwidth", "down", "\"failed\""},
             Case{"/overrides/0/bandwidth", 0, "bandwidth"},
             Case{"/overrides/0/bandwidth", 1.5, "bandwidth"},
             Case{"/overrides/0/node", 2, "a class of links"},
             Case{"/overrides/0/at_seconds", 0, "at_seconds"},
             Case{"/overrides/0/at_seconds", -1, "at_seconds"},
             Case{"/overrides/0/at_seconds", "soon", "at_seconds"},
             Case{"/overrides/0/at_seconds", 1e9, "at_seconds"},
             Case{"/other_devices/0/device", "a1000", "a100-sxm-80gb"},
             Case{"/other_devices/0/nodes", 0, "nodes"},
         }) {
        Json json = good;
        json[Json::json_pointer(bad.pointer)] = bad.value;
        const std::string message = refusal_of(json.dump());
        EXPECT_NE(message.find(bad.expected), std::string::npos) << bad.pointer << ": " << message;
        EXPECT_NE(message.find("test.json"), std::string::npos) << message;
    }
    for (const char* key : {"socket_link"}) {
        Json json = good;
        json["inside"].erase(key);
        EXPECT_NE(refusal_of(json.dump()).find(key), std::string::npos) << key;
    }
    Json none = good;
    none["fabric"] = "none";
    none["nodes"] = 1;
    EXPECT_NE(refusal_of(none.dump()).find("fabric_shape"), std::string::npos);
}

TEST(ClusterFile, InconsistentInsidesAreRefusedWhenBuilt) {
    const ClusterSpec good = cluster_from_json_text(documented_example(), "docs/clusters.md");
    const auto refused = [&](const std::function<void(ClusterSpec&)>& change) -> std::string {
        ClusterSpec spec = good;
        change(spec);
        try {
            const Cluster cluster(spec);
        } catch (const InputError& error) {
            return error.what();
        }
        return "";
    };
    EXPECT_EQ(refused([](ClusterSpec&) {}), "");
    struct Case {
        std::function<void(ClusterSpec&)> change;
        const char* expected;
    };
    const std::vector<Case> cases{
        {[](ClusterSpec& c) { c.inside.pcie_switches = 3; }, "inside.pcie_switches: got 3"},
        {[](ClusterSpec& c) {
             c.inside.device_ports = {0, 1};
         },
         "inside.device_ports: got 2 numbers; allowed: 8"},
        {[](ClusterSpec& c) {
             c.inside.nic_ports = {0, 2};
         },
         "inside.nic_ports: got 2; allowed: 0 to 1"},
        {[](ClusterSpec& c) {
             c.inside.nvlink_pairs = {{0, 8, 1}};
         },
         "inside.nvlink_pairs: got 0 and 8"},
        {[](ClusterSpec& c) {
             c.inside.nvlink_pairs = {{3, 3, 1}};
         },
         "inside.nvlink_pairs: got 3 and 3"},
        {[](ClusterSpec& c) {
             c.inside.nvlink_pairs = {{0, 1, 1}, {1, 0, 1}};
         },
         "inside.nvlink_pairs: got devices 1 and 0"},
        {[](ClusterSpec& c) {
             c.node_switches = 1, c.inside.nvlink_pairs = {{0, 1, 1}};
         },
         "node_switches"},
        {[](ClusterSpec& c) { c.nic.latency_us.value = std::nan(""); }, "latency_us"},
        {[](ClusterSpec& c) { c.nic.bandwidth_gb_per_s_per_direction.value = 0; }, "bandwidth"},
    };
    for (const Case& bad : cases) {
        const std::string message = refused(bad.change);
        EXPECT_NE(message.find(bad.expected), std::string::npos) << bad.expected << " in: " << message;
    }
}

TEST(NodeInside, AHybridCubeMeshReachesEveryDeviceOverNvlink) {
    // DGX-1: two fully connected quads, with two links in some pairs, and a link from each device to its counterpart in
    // the other quad.
    ClusterSpec spec = load_cluster("dgx1-v100", 8);
    spec.inside.nvlink_pairs.clear();
    spec.inside.sockets = 2;
    spec.inside.socket_link = test::cable(20);
    spec.inside.pcie_switches = 4;
    for (std::int64_t quad : {0, 4}) {
        for (const DirectLinks& pair :
             std::vector<DirectLinks>{{0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {1, 2, 2}, {1, 3, 1}, {2, 3, 1}}) {
            spec.inside.nvlink_pairs.push_back({quad + pair.a, quad + pair.b, pair.links});
        }
    }
    for (std::int64_t i = 0; i < 4; ++i) spec.inside.nvlink_pairs.push_back({i, i + 4, 2});
    const Cluster cluster(spec);
    std::map<std::int64_t, int> pairs;
    for (std::int64_t a = 0; a < 8; ++a) {
        double out = 0;
        for (const Link& link : cluster.links_from(static_cast<VertexId>(a))) {
            if (link.kind == LinkKind::intra_node) out += link.bandwidth.value();
        }
        EXPECT_DOUBLE_EQ(out, 150e9);  // 6 links of 25 GB/s
        for (std::int64_t b = 0; b < 8; ++b) {
            if (a == b) continue;
            const Path path = cluster.path(a, b);
            ++pairs[path.hops];
            for (const LinkId id : path.links) EXPECT_EQ(cluster.link(id).kind, LinkKind::intra_node);
        }
    }
    EXPECT_EQ(pairs, (std::map<std::int64_t, int>{{1, 8 * 4}, {2, 8 * 3}}));
    EXPECT_DOUBLE_EQ(cluster.path(0, 3).bandwidth.value(), 50e9);
    EXPECT_DOUBLE_EQ(cluster.path(0, 1).bandwidth.value(), 25e9);
    spec.overrides = {{"intra_node", -1, -1, 0}};  // without NVLink: over PCIe, and between sockets
    const Cluster without(spec);
    EXPECT_EQ(without.path(0, 1).hops, 2);
    EXPECT_EQ(without.path(0, 2).hops, 4);
    EXPECT_EQ(without.path(0, 7).hops, 5);
}

}  // namespace
}  // namespace orrery::topologies
