// orrery topo and orrery topo import: output, pictures, cluster files and refusals.
#include <gtest/gtest.h>

#include <pugixml.hpp>

#include "tests/cli/checks.h"
#include "tests/house/json_schema.h"

namespace orrery::test {
namespace {

using nlohmann::json;

std::string data(const std::string& name) {
    return std::string(ORRERY_SOURCE_DIR) + "/tests/data/importers/" + name;
}

std::int64_t count_of(const json& topology, const std::string& list, const std::string& kind) {
    std::int64_t count = 0;
    for (const json& one : topology.at(list)) {
        if (one.at("kind") == kind) count += one.at("count").get<std::int64_t>();
    }
    return count;
}

TEST(Topo, CountsWhatAClusterHas) {
    const CommandResult result = orrery({"topo", "dgx-h100", "--gpus", "512", "--paths", "0", "256", "--json"});
    expect_done(result);
    EXPECT_EQ(house::repository_schemas(ORRERY_SOURCE_DIR).check(result.out), "");
    const json topology = json::parse(result.out);
    EXPECT_EQ(topology.at("nodes"), 64);
    EXPECT_EQ(count_of(topology, "vertices", "device"), 512);
    EXPECT_EQ(count_of(topology, "vertices", "leaf"), 16);  // two scalable units of 8 rails
    EXPECT_EQ(count_of(topology, "links", "nic"), 512);
    EXPECT_EQ(count_of(topology, "links", "trunk"), 512);  // 32 uplinks a leaf
    EXPECT_DOUBLE_EQ(topology.at("bisection_bandwidth_gb_per_s").get<double>(), 256 * 50.0);
    const json& paths = topology.at("paths");
    EXPECT_EQ(paths.at("equal"), 32);  // one through each spine
    EXPECT_EQ(paths.at("listed").size(), 16U);
    for (const json& way : paths.at("listed")) {
        EXPECT_EQ(way.at("hops").size(), 6U);
        EXPECT_DOUBLE_EQ(way.at("bandwidth_gb_per_s_per_direction").get<double>(), 50);
        EXPECT_NEAR(way.at("latency_us").get<double>(), 4 * 0.13, 1e-9);
    }
    EXPECT_EQ(paths.at("forwarded"), false);
    const std::string text = orrery({"topo", "dgx-h100", "--gpus", "512", "--paths", "0", "256"}).out;
    for (const char* part : {"64 nodes of 8 h100-sxm-80gb", "Bisection bandwidth 12800.0 GB/s",
                             "32 ways of equal length", "leaf 0 -> spine 0", "nvlink4", "datasheet"}) {
        EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
    }
}

TEST(Topo, AnotherRailIsReachedOverNvlink) {
    const CommandResult result = orrery({"topo", "dgx-h100", "--gpus", "16", "--paths", "0", "9", "--json"});
    expect_done(result);
    EXPECT_EQ(house::repository_schemas(ORRERY_SOURCE_DIR).check(result.out), "");
    const json paths = json::parse(result.out).at("paths");
    EXPECT_EQ(paths.at("forwarded"), true);
    EXPECT_EQ(paths.at("equal"), 1);
    EXPECT_EQ(paths.at("listed").at(0).at("hops").at(1).at("to"), "node 0 device 1");
    EXPECT_NE(orrery({"topo", "dgx-h100", "--gpus", "16", "--paths", "0", "9"}).out.find("forwarded to the receiver's"),
              std::string::npos);
}

/// A cluster with the preset's nodes and one changed key.
std::string changed_preset(const char* pointer, const json& value) {
    json cluster = json::parse(orrery({"clusters", "dgx-h100"}).out);
    cluster["nodes"] = 4;
    cluster["nodes_per_scalable_unit"] = 2;
    cluster.erase("fabric_shape");
    cluster[json::json_pointer(pointer)] = value;
    return cluster.dump();
}

TEST(Topo, AnImpossibleClusterIsOneError) {
    const Workplace here;
    struct Case {
        const char* pointer;
        json value;
        std::vector<std::string> words;
    };
    const json no_node_link{{"link", "nic"}, {"node", 2}, {"bandwidth", "failed"}};
    for (const Case& bad :
         {Case{"/nic/bandwidth_gb_per_s_per_direction/value", 0, {"greater than 0"}},
          Case{"/nic/bandwidth_gb_per_s_per_direction/value", -5, {"greater than 0"}},
          Case{"/nic/latency_us/value", -1, {"at least 0"}}, Case{"/nodes", 1 << 20, {"nodes", "1048576 devices"}},
          Case{"/overrides", {{{"link", "leaf 0 - leaf 0"}, {"bandwidth", "failed"}}}, {"'leaf 0 - leaf 0'"}},
          Case{"/overrides", {{{"link", "leaf 0 - spine 9"}, {"bandwidth", "failed"}}}, {"'spine 9'"}},
          Case{"/inside", {{"nvlink_pairs", {{{"devices", {1, 1}}}}}}, {"nvlink_pairs"}},
          Case{"/overrides", json::array({no_node_link}), {"device 0", "cannot reach device 16"}}}) {
        here.write("c.json", changed_preset(bad.pointer, bad.value));
        SCOPED_TRACE(bad.pointer);
        expect_refused(here.run({"topo", "c.json", "--paths", "0", "16"}), 2, bad.words);
    }
    std::string text = changed_preset("/nic/latency_us/value", 7777);
    text.replace(text.find("7777"), 4, "NaN");
    here.write("c.json", text);
    expect_refused(here.run({"topo", "c.json"}), 2, {"c.json:", "not valid JSON"});
    // A group across the failed link is an error; a group that avoids it works.
    here.write("c.json", changed_preset("/overrides", json::array({no_node_link})));
    expect_refused(here.run({"collectives", "c.json", "--gpus", "32"}), 2, {"cannot reach"});
    expect_done(here.run({"collectives", "c.json", "--gpus", "32", "--ranks", "16", "-b", "1M", "-e", "1M"}));
}

TEST(Topo, ReadsNodesFromAForeignFile) {
    const Workplace here;
    const json cluster{{"schema", "orrery.cluster/1"},
                       {"name", "ours"},
                       {"source", "test"},
                       {"nodes", 2},
                       {"node", {{"file", data("hgx4.smi.txt")}, {"device", "h100-sxm-80gb"}}},
                       {"fabric", "single_switch"}};
    here.write("c.json", cluster.dump());
    const CommandResult result = here.run({"topo", "c.json", "--json"});
    expect_done(result);
    EXPECT_EQ(house::repository_schemas(ORRERY_SOURCE_DIR).check(result.out), "");
    EXPECT_EQ(json::parse(result.out).at("devices_per_node"), 4);
    EXPECT_FALSE(json::parse(result.out).at("notes").empty());
    expect_done(here.run({"collectives", "c.json", "--ranks", "8", "-b", "1M", "-e", "1M"}));
    expect_done(here.run({"plan", "--model", "tiny-gpt", "--cluster", "c.json", "--gpus", "8", "--dp", "8", "--tp", "1",
                          "--pp", "1", "--global-batch", "8", "--seq", "32", "--output", "p.plan.json"}));
    const CommandResult simulated = here.run({"simulate", "p.plan.json"});
    expect_done(simulated);
    EXPECT_NE((simulated.out + simulated.err).find("hgx4.smi.txt"), std::string::npos) << simulated.out;
}

TEST(Topo, StripesInsideANode) {
    const CommandResult result = orrery({"topo", "dgx-h100", "--gpus", "8", "--paths", "1", "2", "--json"});
    expect_done(result);
    const json way = json::parse(result.out).at("paths").at("listed").at(0);
    ASSERT_EQ(way.at("hops").size(), 2U);
    EXPECT_EQ(way.at("hops").at(0).at("stripes"), 4);
    EXPECT_DOUBLE_EQ(way.at("bandwidth_gb_per_s_per_direction").get<double>(), 450);
    EXPECT_EQ(json::parse(orrery({"topo", "dgx-h100", "--paths", "0", "0", "--json"}).out)
                  .at("paths")
                  .at("listed")
                  .at(0)
                  .at("hops")
                  .size(),
              0U);
}

TEST(Topo, DrawsWellFormedPicturesOfAnySize) {
    struct Expected {
        const char* cluster;
        const char* gpus;
        std::size_t boxes;  // background, node frames, vertices
    };
    const Workplace here;
    for (const Expected& one : {Expected{"dgx-h100", "8", 1 + 1 + 8 + 4 + 8},
                                // 4 of 64 nodes, all 16 leaves, 16 of 32 spines are drawn.
                                Expected{"dgx-h100", "512", 1 + 4 + 4 * (8 + 4 + 8) + 16 + 16},
                                Expected{"dgx-h100", "16384", 1 + 4 + 4 * (8 + 4 + 8) + 16 + 16 + 16},
                                Expected{"dgx1-v100", "8", 1 + 1 + 8 + 4}}) {
        SCOPED_TRACE(std::string(one.cluster) + " " + one.gpus);
        expect_done(here.run({"topo", one.cluster, "--gpus", one.gpus, "--svg", "c.svg", "--dot", "c.dot"}));
        pugi::xml_document svg;
        const std::string text = here.read("c.svg");
        ASSERT_TRUE(svg.load_string(text.c_str()));
        EXPECT_STREQ(svg.document_element().name(), "svg");
        EXPECT_LT(text.size(), 300'000U);
        EXPECT_EQ(svg.select_nodes("//*[local-name()='rect']").size(), one.boxes);
        EXPECT_EQ(text.find("more nodes") != std::string::npos, std::string(one.gpus).size() > 1);
        const std::string dot = here.read("c.dot");
        EXPECT_TRUE(dot.starts_with("graph cluster {"));
        EXPECT_NE(dot.find("subgraph cluster_node0"), std::string::npos);
    }
}

TEST(Topo, ShowsForeignFiles) {
    const auto shown = [](const std::vector<std::string>& more) {
        std::vector<std::string> command{"topo"};
        command.insert(command.end(), more.begin(), more.end());
        const CommandResult result = orrery(command);
        expect_done(result);
        return result.out;
    };
    EXPECT_NE(shown({data("hgx4.topo.xml")}).find("18 NVLinks per GPU to 2 NVSwitches"), std::string::npos);
    EXPECT_NE(shown({data("hgx4.smi.txt")}).find("give the GPU: --device"), std::string::npos);
    EXPECT_NE(shown({data("hgx4.smi.txt"), "--device", "h200-sxm-141gb"}).find("1 node of 4 h200-sxm-141gb"),
              std::string::npos);
    EXPECT_NE(shown({data("small.ibnetdiscover.txt")}).find("4 nodes, 4 switches"), std::string::npos);
    EXPECT_NE(shown({data("tree.topology.conf"), "--node", "dgx-h100"}).find("8 nodes of 8 h100-sxm-80gb"),
              std::string::npos);
    EXPECT_NE(shown({data("ring.graph.xml")}).find("net 0 - 0 1 2 3 - net 1"), std::string::npos);
    EXPECT_EQ(house::repository_schemas(ORRERY_SOURCE_DIR).check(shown({data("ring.graph.xml"), "--json"})), "");
    EXPECT_EQ(house::repository_schemas(ORRERY_SOURCE_DIR).check(shown({data("hgx4.topo.xml"), "--json"})), "");
}

TEST(TopoImport, WritesAClusterThatPlansAreMadeFor) {
    const Workplace here;
    const CommandResult result =
        here.run({"topo", "import", data("hgx4.topo.xml"), data("tree.topology.conf"), "-o", "c.json", "--json"});
    expect_done(result);
    EXPECT_EQ(house::repository_schemas(ORRERY_SOURCE_DIR).check(result.out), "");
    EXPECT_EQ(house::repository_schemas(ORRERY_SOURCE_DIR).check(here.read("c.json")), "");
    EXPECT_EQ(json::parse(result.out).at("nodes"), 8);
    expect_done(here.run({"topo", "c.json", "--paths", "0", "31"}));
    expect_done(here.run({"plan", "--model", "tiny-gpt", "--cluster", "c.json", "--gpus", "8", "--dp", "8", "--tp", "1",
                          "--pp", "1", "--global-batch", "8", "--seq", "32", "--output", "p.plan.json"}));
    expect_done(here.run({"simulate", "p.plan.json"}));
}

TEST(TopoImport, RefusalsNameFileOrOption) {
    const Workplace here;
    here.write("text.txt", std::string("hello"));
    here.write("big.conf", std::string("SwitchName=a Nodes=n[0-999999999]"));
    here.write("doctype.xml", std::string("<!DOCTYPE system><system version=\"1\"><cpu numaid=\"0\"/></system>"));
    const std::vector<std::string> before = here.names();
    const auto refused = [&](std::vector<std::string> arguments, const std::vector<std::string>& words) {
        arguments.insert(arguments.begin(), "topo");
        expect_refused(here.run(arguments), 2, words);
        EXPECT_EQ(here.names(), before);
    };
    refused({"import", "none.xml", "-o", "c.json"}, {"none.xml"});
    refused({"import", "text.txt", "-o", "c.json"}, {"text.txt: unknown format; allowed: NCCL topology"});
    refused({"import", "big.conf", "-o", "c.json"}, {"big.conf: line 1: Nodes: got 'n[0-999999999]'"});
    refused({"import", "doctype.xml", "-o", "c.json"}, {"doctype.xml: got a DOCTYPE"});
    refused({"import", data("hgx4.smi.txt"), "-o", "c.json"}, {"give --device; allowed: a10, ", "a100-sxm-40gb"});
    refused({"import", data("hgx4.topo.xml"), "-o", "c.json", "--device", "h999"}, {"h999"});
    refused({"import", data("tree.topology.conf"), "-o", "c.json"}, {"give --node"});
    refused({"import", data("hgx4.topo.xml"), "-o", "nowhere/c.json"},
            {"--output: got a file in a folder that does not exist"});
    refused({"import", data("hgx4.topo.xml")}, {"--output"});
    refused({"dgx-h100", "--paths", "0", "8"}, {"--paths: rank: got 8; allowed: 0 to 7"});
    refused({"dgx-h100", "--gpus", "12"}, {"multiple of the node's 8"});
    refused({"no-such-cluster"}, {"no-such-cluster"});
    refused({"text.txt"}, {"text.txt"});
    refused({}, {"cluster"});
}

}  // namespace
}  // namespace orrery::test
