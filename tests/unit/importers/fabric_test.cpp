#include <algorithm>

#include "tests/unit/importers/importers.h"
#include "topologies/importers/ibnetdiscover.h"
#include "topologies/importers/slurm_topology.h"
#include "topologies/importers/yaml_value.h"

namespace orrery::topologies::test {
namespace {

std::string refused_conf(const std::string& text) {
    return refusal_of([&] { (void)slurm_conf_from_text(text, "t.conf"); });
}
std::string refused_yaml(const std::string& text) {
    return refusal_of([&] { (void)slurm_yaml_from_text(text, "t.yaml"); });
}
void expect_words(const std::string& message, const std::string& words) {
    EXPECT_NE(message.find(words), std::string::npos) << message << "\nwithout: " << words;
}

TEST(SlurmConf, ReadsATree) {
    const FabricDescription fabric = slurm_conf_from_text(data_text("tree.topology.conf"), "t.conf");
    EXPECT_EQ(fabric.layout, FabricLayout::tree);
    ASSERT_EQ(fabric.switches.size(), 3U);
    EXPECT_EQ(fabric.switches[0].name, "top");
    EXPECT_EQ(fabric.switches[0].switches, (std::vector<std::int64_t>{1, 2}));
    EXPECT_EQ(fabric.switches[2].nodes, (std::vector<std::string>{"n05", "n06", "n07", "n08"}));
    EXPECT_EQ(fabric.nodes.size(), 8U);
    EXPECT_TRUE(has_note(fabric.notes.list(), "LinkSpeed"));
    EXPECT_EQ(tiers_of(fabric), (std::vector<std::int64_t>{2, 1, 1}));
}

TEST(SlurmConf, ReadsBlocksAndRings) {
    const FabricDescription blocks = slurm_conf_from_text(data_text("block.topology.conf"), "t.conf");
    EXPECT_EQ(blocks.layout, FabricLayout::block);
    EXPECT_EQ(blocks.blocks.size(), 2U);
    EXPECT_EQ(blocks.block_sizes, (std::vector<std::int64_t>{4, 8}));
    EXPECT_EQ(blocks.nodes.size(), 8U);
    EXPECT_EQ(slurm_conf_from_text("RingName=r Nodes=a[1-3]", "t").layout, FabricLayout::ring);
}

TEST(SlurmConf, ErrorsNameThePlace) {
    expect_words(refused_conf(""), "allowed: lines of one kind");
    expect_words(refused_conf("SwitchName=a Nodes=n1\nBlockName=b Nodes=n2"), "got several kinds");
    expect_words(refused_conf("\nSwitchName=a"), "t.conf: line 2: 'a': got neither");
    expect_words(refused_conf("SwitchName=a Nodes=n1 Switches=b"), "got both");
    expect_words(refused_conf("SwitchName=a Switches=b"), "line 1: Switches: got 'b'");
    expect_words(refused_conf("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2"), "line 2: switch 'a' appears twice");
    expect_words(refused_conf("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1"), "node 'n1' is below 'a' and below 'b'");
    expect_words(refused_conf("SwitchName=a Switches=b\nSwitchName=b Switches=a"), "is below itself");
    expect_words(refused_conf("SwitchName=a Switches=a"), "is below itself");
    expect_words(refused_conf("SwitchName=a Switches=c\nSwitchName=b Switches=c\nSwitchName=c Nodes=n1"),
                 "switch 'c' is below 'a' and below 'b'");
    expect_words(refused_conf("SwitchName=a[1-2] Nodes=n1"), "the name of one switch");
    expect_words(refused_conf("SwitchName=a Nodes=n[0-999999999]"), "line 1: Nodes: got 'n[0-999999999]'");
    expect_words(refused_conf("SwitchName=a Nodes="), "nodes: got ''");
    expect_words(refused_conf("SwitchName=a Nodes=n1 Colour=red"), "colour: got 'red'");
    expect_words(refused_conf("SwitchName=a Nodes=n1 Nodes=n2"), "appears twice");
    expect_words(refused_conf("hello"), "allowed: Key=Value");
    expect_words(refused_conf("Include other.conf"), "got an Include");
    expect_words(refused_conf("BlockName=a Nodes=n1\nBlockSizes=0"), "BlockSizes: got '0'");
    expect_words(refused_conf("BlockName=a Nodes=n1\nBlockName=b Nodes=n1"), "one block per node");
    expect_words(refused_conf("BlockName=a"), "Nodes: missing");
    std::string many;
    for (int i = 0; i < 3; ++i)
        many += "BlockName=b" + std::to_string(i) + " Nodes=n" + std::to_string(i) + "[0-600000]\n";
    expect_words(refused_conf(many), "line 2: Nodes");
}

TEST(SlurmYaml, ReadsEveryKindDefaultFirst) {
    const std::vector<FabricDescription> all = slurm_yaml_from_text(data_text("topology.yaml"), "t.yaml");
    ASSERT_EQ(all.size(), 5U);
    EXPECT_EQ(all[0].name, "fabric");
    EXPECT_EQ(all[0].layout, FabricLayout::tree);
    EXPECT_EQ(all[0].switches.size(), 3U);
    EXPECT_EQ(all[0].nodes.size(), 8U);
    EXPECT_EQ(all[1].layout, FabricLayout::block);
    EXPECT_EQ(all[1].block_sizes, (std::vector<std::int64_t>{4, 8}));
    EXPECT_EQ(all[2].layout, FabricLayout::ring);
    EXPECT_EQ(all[3].layout, FabricLayout::torus);
    EXPECT_EQ(all[3].torus_dimensions, (std::vector<std::int64_t>{2, 2, 2}));
    EXPECT_EQ(all[4].layout, FabricLayout::flat);
}

TEST(SlurmYaml, ErrorsNameThePlace) {
    expect_words(refused_yaml(""), "topologies: got nothing");
    expect_words(refused_yaml("a: b"), "topologies: got a map");
    expect_words(refused_yaml("- 1"), "line 1: topology: got '1'");
    expect_words(refused_yaml("- flat: true"), "topology: the key is missing");
    expect_words(refused_yaml("- topology: a"), "'a': got none");
    expect_words(refused_yaml("- topology: a\n  flat: true\n  tree: {switches: []}"), "got several");
    expect_words(refused_yaml("- topology: a\n  cluster_default: 3\n  flat: true"), "cluster_default: value: got '3'");
    expect_words(refused_yaml("- topology: a\n  tree:\n    switches:\n    - switch: s"),
                 "line 4: switch: switch: 's': got neither");
    expect_words(refused_yaml("- topology: a\n  tree:\n    switches:\n    - {switch: s, children: t}"), "got 't'");
    expect_words(refused_yaml("- topology: a\n  block: {block_sizes: [x], blocks: []}"), "got 'x'");
    expect_words(refused_yaml("- topology: a\n  block: {blocks: []}"), "at least one block");
    expect_words(refused_yaml("- topology: a\n  torus3d: {toruses: [{x: 2, y: 2, z: 2, nodes: n1}]}"), "x * y * z");
    expect_words(refused_yaml("- topology: a\n  topology: b"), "the key 'topology' twice");
    expect_words(refused_yaml("- &a b\n- *a"), "got an anchor");
    expect_words(refused_yaml("- !!binary aa"), "the tag");
    expect_words(refused_yaml("- topology: a\n  flat: true\n---\n- b"), "a second document");
    expect_words(refused_yaml("- [a\n"), "t.yaml: line 1");
    expect_words(refused_yaml("- a: b: c"), "not well-formed YAML");
    expect_words(refused_yaml(std::string(5000, '[')), "t.yaml");
    expect_words(refused_yaml(std::string(100, '[') + std::string(100, ']')), "more than 64 levels");
}

TEST(Topograph, ReadsModels) {
    const FabricDescription fabric = topograph_from_text(data_text("model.topograph.yaml"), "m.yaml");
    EXPECT_EQ(fabric.switches.size(), 3U);
    EXPECT_EQ(fabric.nodes, (std::vector<std::string>{"n11", "n12", "n13", "n21", "n22", "n23"}));
    ASSERT_EQ(fabric.blocks.size(), 2U);
    EXPECT_EQ(fabric.blocks[1].name, "nvl-2");
    EXPECT_EQ(tiers_of(fabric), (std::vector<std::int64_t>{2, 1, 1}));
    EXPECT_TRUE(has_note(fabric.notes.list(), "labels: not read"));
}

TEST(IbNetDiscover, ReadsSwitchesHostsAndCables) {
    const IbFabric ib = ibnetdiscover_from_text(data_text("small.ibnetdiscover.txt"), "ib");
    EXPECT_EQ(ib.devices.size(), 9U);
    EXPECT_EQ(ib.cables.size(), 9U);  // 4 hosts, 1 aggregation node, 4 between switches
    for (const IbCable& cable : ib.cables) EXPECT_DOUBLE_EQ(cable.gb_per_s_per_direction, 50);
    const FabricDescription fabric = fabric_of(ib);
    ASSERT_EQ(fabric.switches.size(), 4U);
    EXPECT_EQ(fabric.switches[0].nodes, (std::vector<std::string>{"n1", "n2"}));
    EXPECT_EQ(fabric.switches[1].nodes, (std::vector<std::string>{"n3", "n4"}));
    EXPECT_EQ(fabric.switches[2].switches, (std::vector<std::int64_t>{0, 1}));
    EXPECT_EQ(fabric.nodes.size(), 4U);
    EXPECT_TRUE(fabric.counts_cables);
    EXPECT_EQ(fabric.switches[3].switch_links, (std::vector<std::int64_t>{1, 1}));
    EXPECT_DOUBLE_EQ(fabric.link_gb_per_s_per_direction, 50);
}

TEST(IbNetDiscover, SkipsGroupHeadings) {
    const std::string text = data_text("small.ibnetdiscover.txt");
    const IbFabric grouped = ibnetdiscover_from_text("Chassis 1 (guid 0x2c90)\n\nNon-Chassis Nodes\n\n" + text, "ib");
    EXPECT_EQ(grouped.cables.size(), ibnetdiscover_from_text(text, "ib").cables.size());
}

TEST(IbNetDiscover, ErrorsNameThePlace) {
    const auto corrupted = [](const std::string& from, const std::string& to) {
        std::string text = data_text("small.ibnetdiscover.txt");
        const std::size_t at = text.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        text.replace(at, from.size(), to);
        return refusal_of([&] { (void)ibnetdiscover_from_text(text, "ib"); });
    };
    expect_words(corrupted("4xNDR", "4xABC"), "ib: line 10: got '4xABC'");
    expect_words(corrupted("4xNDR", "3xNDR"), "got '3xNDR'");
    expect_words(corrupted("4xNDR", "2xNDR"), "says of the same cable");
    expect_words(corrupted("\"H-00a0\"[1]", "\"H-00a9\"[1]"), "a device that the file describes");
    expect_words(corrupted("\"H-00a0\"[1]", "\"H-00a0\"[2]"), "a port that the device has");
    expect_words(corrupted("[1]\t", "[9]\t"), "a port that the device has");
    expect_words(corrupted("[1]\t", "[2]\t"), "each port once");
    expect_words(corrupted("[1]\t", "[1000000]\t"), "[port] from 1 to 254");
    expect_words(corrupted("Switch\t8", "Switch\t0"), "a number of ports");
    expect_words(corrupted("Switch\t8", "Rt\t8"), "routers");
    expect_words(corrupted("\"S-0011\"", "\"H-0011\""), "S-... of a Switch");
    expect_words(corrupted("\"S-0012\"\t", "\"S-0011\"\t"), "each device once");
    EXPECT_NE(refusal_of([] { (void)ibnetdiscover_from_text("# nothing\n", "ib"); }).find("no Switch"),
              std::string::npos);
    expect_words(refusal_of([] { (void)ibnetdiscover_from_text("[1] \"S-1\"[1]", "ib"); }), "ports below");
}

TEST(IbNetDiscover, KnowsLaneRates) {
    EXPECT_DOUBLE_EQ(ib_lane_gbit_per_s("EDR"), 25);
    EXPECT_DOUBLE_EQ(ib_lane_gbit_per_s("XDR"), 200);
    EXPECT_NEAR(ib_lane_gbit_per_s("FDR"), 13.64, 0.01);
    EXPECT_EQ(ib_lane_gbit_per_s("ABC"), 0);
}

class FabricSamples : public Samples {};

TEST_F(FabricSamples, SlurmOfTopograph) {
    const FabricDescription tree = slurm_conf_from_text(text("slurm/topology-tree-topograph.conf"), "t");
    EXPECT_EQ(tree.switches.size(), 19U);  // 1 core, 6 spines, 12 leaves
    EXPECT_EQ(tree.nodes.size(), 96U);
    EXPECT_EQ(tiers_of(tree).front(), 3);
    const FabricDescription block = slurm_conf_from_text(text("slurm/topology-block-topograph.conf"), "t");
    EXPECT_EQ(block.blocks.size(), 12U);
    EXPECT_EQ(block.nodes.size(), 96U);
    EXPECT_EQ(block.block_sizes, (std::vector<std::int64_t>{8, 16, 32}));
}

TEST_F(FabricSamples, TopographModels) {
    const FabricDescription medium = topograph_from_text(text("topograph/medium.yaml"), "t");
    EXPECT_EQ(medium.switches.size(), 7U);
    EXPECT_EQ(medium.nodes.size(), 8U);
    EXPECT_EQ(medium.nodes.front(), "1101");
    EXPECT_EQ(medium.blocks.size(), 4U);
    const FabricDescription nvl72 = topograph_from_text(text("topograph/nvl72.yaml"), "t");
    EXPECT_EQ(nvl72.switches.size(), 7U);
    EXPECT_EQ(nvl72.nodes.size(), 72U);
    EXPECT_EQ(nvl72.blocks.front().nodes.size(), 18U);
    const FabricDescription small = topograph_from_text(text("topograph/small-tree.yaml"), "t");
    EXPECT_EQ(small.nodes, (std::vector<std::string>{"I21", "I22", "I25", "I34", "I35", "I36"}));
}

TEST_F(FabricSamples, InfiniBandOfFortySwitches) {
    const IbFabric ib = ibnetdiscover_from_text(text("ib/ibnetdiscover-example.out"), "ib");
    const auto count = [&](auto is) { return std::count_if(ib.devices.begin(), ib.devices.end(), is); };
    EXPECT_EQ(count([](const IbDevice& one) { return one.is_switch; }), 40);
    EXPECT_EQ(count([](const IbDevice& one) { return !one.is_switch; }), 582);
    EXPECT_EQ(count(is_aggregation_node), 40);
    EXPECT_EQ(ib.cables.size(), 1114U);  // 2,228 ports, two per cable
    for (const IbCable& cable : ib.cables) ASSERT_DOUBLE_EQ(cable.gb_per_s_per_direction, 50);
    const FabricDescription fabric = fabric_of(ib);
    EXPECT_EQ(fabric.switches.size(), 40U);
    const auto leaves = std::count_if(fabric.switches.begin(), fabric.switches.end(),
                                      [](const FabricSwitch& one) { return !one.nodes.empty(); });
    EXPECT_EQ(leaves, 31);
    EXPECT_EQ(fabric.nodes.size(), 122U);  // 119 DGX and 3 other hosts
    EXPECT_TRUE(has_note(fabric.notes.list(), "69 adapters name their product"));
}

}  // namespace
}  // namespace orrery::topologies::test
