// Cluster files whose nodes come from a foreign file.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "tests/house/json_schema.h"
#include "tests/unit/core/test_folder.h"
#include "topologies/cluster.h"
#include "topologies/importers/import_file.h"

namespace orrery::topologies {
namespace {

using Json = nlohmann::ordered_json;

const std::string kNode = std::string(ORRERY_SOURCE_DIR) + "/examples/topology/node.topo.xml";

Json cluster_of(const std::string& node_file) {
    return {{"schema", "orrery.cluster/1"},  {"name", "ours"},
            {"source", "the machine room"},  {"nodes", 6},
            {"node", {{"file", node_file}}}, {"fabric", "rail_optimised"},
            {"nodes_per_scalable_unit", 4},  {"routing", {{"spread", "destination"}}}};
}

std::string refusal_of(const Json& json) {
    try {
        (void)cluster_from_json_text(json.dump(), "test.json");
    } catch (const InputError& error) {
        return error.what();
    }
    return "";
}

TEST(NodeFile, IsTheImportedNodeOnTheFilesFabric) {
    const ClusterSpec spec = cluster_from_json_text(cluster_of(kNode).dump(), "test.json");
    Notes notes;
    const ClusterSpec alone = cluster_of_node(*read_foreign(kNode).node, kNode, {}, notes);
    EXPECT_EQ(spec.devices_per_node, 4);
    EXPECT_EQ(spec.device, alone.device);
    EXPECT_EQ(spec.inside, alone.inside);
    EXPECT_EQ(spec.intra_node, alone.intra_node);
    EXPECT_EQ(spec.nic, alone.nic);
    EXPECT_EQ(spec.low_latency, alone.low_latency);
    EXPECT_EQ(spec.name, "ours");
    EXPECT_EQ(spec.nodes, 6);
    EXPECT_EQ(spec.nodes_per_scalable_unit, 4);
    EXPECT_EQ(spec.routing.spread, Spread::destination);
    EXPECT_EQ(Cluster(spec).path(0, 4).hops, 6);  // device, PCIe switch, NIC, leaf and back
    // Written files hold the node in full.
    EXPECT_EQ(cluster_from_json_text(to_json_text(spec), "again"), spec);
}

TEST(NodeFile, PathsAreRelativeToTheNamingFile) {
    const TestFolder folder;
    const std::string file = folder.file("node.xml");
    write_file_atomically(file, read_text_file(kNode));
    for (const char* name : {"cluster.json", "job.plan.json: /cluster"}) {
        const std::string from = folder.file(name);
        EXPECT_EQ(cluster_from_json_text(cluster_of("node.xml").dump(), from).devices_per_node, 4) << name;
    }
}

TEST(NodeFile, AssumptionsAreNotes) {
    const std::string file = std::string(ORRERY_SOURCE_DIR) + "/tests/data/importers/hgx4.smi.txt";
    Json json = cluster_of(file);
    json["node"]["device"] = "h100-sxm-80gb";
    const ClusterSpec spec = cluster_from_json_text(json.dump(), "test.json");
    ASSERT_FALSE(spec.notes.empty());
    for (const std::string& note : spec.notes) EXPECT_TRUE(note.starts_with(file + ": ")) << note;
    EXPECT_EQ(cluster_from_json_text(to_json_text(spec), "again"), spec);  // notes are written too
    const house::SchemaSet schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    EXPECT_EQ(schemas.check(to_json_text(spec)), "");
}

TEST(NodeFile, ErrorsNameTheKey) {
    EXPECT_EQ(refusal_of(cluster_of(kNode)), "");
    const std::string data = std::string(ORRERY_SOURCE_DIR) + "/tests/data/importers/";
    EXPECT_NE(refusal_of(cluster_of("nowhere.xml")).find("nowhere.xml: there is no such file"), std::string::npos);
    EXPECT_NE(refusal_of(cluster_of(data + "tree.topology.conf")).find("/node/file"), std::string::npos);
    EXPECT_NE(refusal_of(cluster_of(data + "ring.graph.xml")).find("NCCL topology XML"), std::string::npos);
    EXPECT_NE(refusal_of(cluster_of(data + "hgx4.smi.txt")).find("--device"), std::string::npos);
    for (const char* key : {"devices_per_node", "device", "intra_node", "nics_per_node", "inside", "nic"}) {
        Json json = cluster_of(kNode);
        json[key] = 4;
        EXPECT_NE(refusal_of(json).find(std::string("/") + key), std::string::npos) << refusal_of(json);
        EXPECT_NE(refusal_of(json).find("together with node"), std::string::npos) << refusal_of(json);
    }
    struct Case {
        const char* key;
        Json value;
        const char* expected;
    };
    for (const Case& bad : {Case{"nvlink", "some", "\"file\", \"switched\", \"none\""}, Case{"devce", "h100", "device"},
                            Case{"device", "a100-sxm-80gb", "compute capability 90"}, Case{"nic", "roce-1", "roce-100"},
                            Case{"file", 3, "string"}}) {
        Json json = cluster_of(kNode);
        json["node"][bad.key] = bad.value;
        EXPECT_NE(refusal_of(json).find(bad.expected), std::string::npos) << bad.key << ": " << refusal_of(json);
    }
}

TEST(NodeFile, ConformsToTheSchema) {
    const house::SchemaSet schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    EXPECT_EQ(schemas.check(cluster_of(kNode).dump()), "");
    Json both = cluster_of(kNode);
    both["devices_per_node"] = 4;
    EXPECT_NE(schemas.check(both.dump()), "");
    Json neither = cluster_of(kNode);
    neither.erase("node");
    EXPECT_NE(schemas.check(neither.dump()), "");
}

}  // namespace
}  // namespace orrery::topologies
