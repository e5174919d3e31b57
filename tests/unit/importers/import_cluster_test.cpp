#include "tests/unit/importers/importers.h"
#include "topologies/cluster.h"
#include "topologies/importers/import_file.h"

namespace orrery::topologies::test {
namespace {

struct Result {
    ClusterSpec cluster;
    std::vector<std::string> notes;
};

Result import(const std::vector<std::string>& paths, const ImportOptions& options = {}, const std::string& node = "") {
    std::vector<ForeignFile> files;
    for (const std::string& path : paths) files.push_back(read_foreign(path));
    Notes notes;
    ClusterSpec cluster = import_cluster(files, node, options, notes);
    return {std::move(cluster), notes.list()};
}

/// The imported cluster is complete: it round-trips through JSON, and its graph can be built.
void expect_self_contained(const ClusterSpec& cluster) {
    EXPECT_EQ(cluster_from_json_text(to_json_text(cluster), "again"), cluster);
    const Cluster built(cluster);
    EXPECT_EQ(built.device_count(), cluster.device_count());
}

TEST(ImportFile, RecognisesFormatsByContent) {
    for (const auto& [file, format] : {std::pair{"hgx4.topo.xml", ForeignFormat::nccl_topology},
                                       {"static.topo.xml", ForeignFormat::nccl_topology},
                                       {"ring.graph.xml", ForeignFormat::nccl_graph},
                                       {"hgx4.smi.txt", ForeignFormat::smi_topo},
                                       {"pairs.smi.txt", ForeignFormat::smi_topo},
                                       {"tree.topology.conf", ForeignFormat::slurm_conf},
                                       {"block.topology.conf", ForeignFormat::slurm_conf},
                                       {"topology.yaml", ForeignFormat::slurm_yaml},
                                       {"model.topograph.yaml", ForeignFormat::topograph},
                                       {"small.ibnetdiscover.txt", ForeignFormat::ibnetdiscover}}) {
        EXPECT_EQ(format_of(data_text(file)), format) << file;
    }
    for (const char* text : {"", "hello", "{}", "<html/>", "<!-- <system>", "<"}) EXPECT_FALSE(format_of(text)) << text;
    EXPECT_NE(refusal_of([] { (void)foreign_from_text("hello", "f"); }).find("f: unknown format"), std::string::npos);
}

TEST(ImportCluster, NodeOfNcclTopology) {
    const auto [cluster, notes] = import({data_file("hgx4.topo.xml")});
    EXPECT_EQ(cluster.device.name, "h100-sxm-80gb");
    EXPECT_EQ(cluster.devices_per_node, 4);
    EXPECT_EQ(cluster.node_switches, 2);
    EXPECT_EQ(cluster.intra_node.name, "nvlink4");
    EXPECT_EQ(cluster.nics_per_node, 4);
    EXPECT_EQ(cluster.nic.name, "infiniband-ndr");
    EXPECT_EQ(cluster.host_link.name, "pcie-gen5-x16");
    EXPECT_EQ(cluster.inside.sockets, 2);
    EXPECT_DOUBLE_EQ(cluster.inside.socket_link.bandwidth_gb_per_s_per_direction.value, 22);  // Sapphire Rapids
    EXPECT_EQ(cluster.inside.pcie_switches, 4);
    EXPECT_EQ(cluster.inside.device_ports, (std::vector<std::int64_t>{0, 1, 2, 3}));
    EXPECT_EQ(cluster.inside.nic_ports, (std::vector<std::int64_t>{0, 1, 2, 3}));
    EXPECT_EQ(cluster.fabric, FabricKind::rail_optimised);
    EXPECT_DOUBLE_EQ(cluster.low_latency.two_nodes_gb_per_s.value, 39);
    EXPECT_TRUE(has_note(notes, "no file describes a fabric"));
    expect_self_contained(cluster);
    expect_self_contained(sized_for(cluster, 256));
}

TEST(ImportCluster, StaticFilesNeedTheDevice) {
    const std::string message = refusal_of([] { (void)import({data_file("static.topo.xml")}); });
    EXPECT_NE(message.find("give --device; allowed: a10, a100-pcie-40gb"), std::string::npos) << message;
    const auto [cluster, notes] = import({data_file("static.topo.xml")}, {"a100-sxm-80gb", "", NvlinkChoice::by_file});
    EXPECT_EQ(cluster.node_switches, 6);
    EXPECT_EQ(cluster.intra_node.name, "nvlink3");
    EXPECT_EQ(cluster.host_link.name, "pcie-gen4-x16");
    EXPECT_EQ(cluster.nics_per_node, 2);
    EXPECT_EQ(cluster.inside.device_ports, (std::vector<std::int64_t>{1, 1, 0, 0}));  // by bus id
    // GPUs 0 and 1 are nearest to the NIC of the second socket.
    EXPECT_EQ(cluster.inside.nic_ports, (std::vector<std::int64_t>{1, 0}));
    EXPECT_DOUBLE_EQ(cluster.low_latency.two_nodes_gb_per_s.value, 22.5);  // AMD
    EXPECT_TRUE(has_note(notes, "does not state NVLinks"));
    EXPECT_TRUE(has_note(notes, "NICs' speed is not stated"));
    expect_self_contained(cluster);
    const ClusterSpec bare =
        import({data_file("static.topo.xml")}, {"a100-sxm-80gb", "roce-100", NvlinkChoice::none}).cluster;
    EXPECT_EQ(bare.node_switches, 0);
    EXPECT_EQ(bare.nic.name, "roce-100");
    expect_self_contained(bare);
}

TEST(ImportCluster, RefusesADeviceThatTheFileContradicts) {
    const std::string message = refusal_of([] {
        (void)import({data_file("hgx4.topo.xml")}, {"a100-sxm-80gb", "", NvlinkChoice::by_file});
    });
    EXPECT_NE(message.find("--device: got a100-sxm-80gb; allowed: a GPU of compute capability 90"), std::string::npos)
        << message;
}

TEST(ImportCluster, NodeOfSmiTopo) {
    const auto [cluster, notes] = import({data_file("hgx4.smi.txt")}, {"h200-sxm-141gb", "", NvlinkChoice::by_file});
    EXPECT_EQ(cluster.node_switches, 4);
    EXPECT_TRUE(has_note(notes, "number of NVSwitches is not stated"));
    EXPECT_EQ(cluster.nics_per_node, 2);
    EXPECT_EQ(cluster.inside.sockets, 2);
    expect_self_contained(cluster);
    const ClusterSpec pairs =
        import({data_file("pairs.smi.txt")}, {"v100-sxm-16gb", "", NvlinkChoice::by_file}).cluster;
    EXPECT_EQ(pairs.node_switches, 0);
    ASSERT_EQ(pairs.inside.nvlink_pairs.size(), 2U);
    EXPECT_EQ(pairs.inside.nvlink_pairs[1], (DirectLinks{2, 3, 4}));
    EXPECT_DOUBLE_EQ(pairs.intra_node.bandwidth_gb_per_s_per_direction.value, 100);  // 4 of 25
    EXPECT_EQ(pairs.nics_per_node, 1);
    expect_self_contained(pairs);
}

TEST(ImportCluster, FabricWithAPresetsNode) {
    EXPECT_NE(refusal_of([] { (void)import({data_file("tree.topology.conf")}); }).find("give --node"),
              std::string::npos);
    const auto [tree, notes] = import({data_file("tree.topology.conf")}, {}, "dgx-h100");
    EXPECT_EQ(tree.fabric, FabricKind::fat_tree);
    EXPECT_EQ(tree.nodes, 8);
    EXPECT_EQ(tree.fabric_shape.levels, 2);
    EXPECT_EQ(tree.fabric_shape.nodes_per_leaf, 4);
    EXPECT_EQ(tree.fabric_shape.uplinks_per_leaf, 32);
    EXPECT_TRUE(has_note(notes, "does not count cables"));
    expect_self_contained(tree);
    const auto [ib, ib_notes] = import({data_file("small.ibnetdiscover.txt")}, {}, "dgx-h100");
    EXPECT_EQ(ib.fabric, FabricKind::fat_tree);
    EXPECT_EQ(ib.nics_per_node, 1) << "the other seven NICs of a DGX have no cable";
    EXPECT_TRUE(has_note(ib_notes, "the node has as many NICs, not 8 NICs"));
    EXPECT_EQ(ib.fabric_shape.nodes_per_leaf, 2);
    EXPECT_EQ(ib.fabric_shape.uplinks_per_leaf, 2);
    expect_self_contained(ib);
    const Result block = import({data_file("block.topology.conf")}, {}, "dgx-h100");
    EXPECT_EQ(block.cluster.fabric, FabricKind::rail_optimised);
    EXPECT_TRUE(has_note(block.notes, "no switches: the fabric stays rail_optimised"));
    expect_self_contained(block.cluster);
}

TEST(ImportCluster, NodeAndFabricTogether) {
    const ClusterSpec both =
        import({data_file("hgx4.topo.xml"), data_file("tree.topology.conf"), data_file("ring.graph.xml")}).cluster;
    EXPECT_EQ(both.device_count(), 32);
    EXPECT_EQ(both.fabric_shape.uplinks_per_leaf, 16);
    expect_self_contained(both);
    EXPECT_NE(refusal_of([] {
                  (void)import({data_file("hgx4.topo.xml"), data_file("hgx4.smi.txt")});
              }).find("a second node"),
              std::string::npos);
    EXPECT_NE(refusal_of([] { (void)import({data_file("hgx4.topo.xml")}, {}, "dgx-h100"); }).find("--node"),
              std::string::npos);
}

class ImportSamples : public Samples {};

TEST_F(ImportSamples, NodesBecomeClusters) {
    struct Expected {
        const char* file;
        const char* device;
        std::int64_t devices, switches, pairs, nics, pcie_switches, sockets;
        double nic_gb_per_s;
    };
    for (const Expected& one :
         {Expected{"nccl_topo/oci-h100-dump.xml", "", 8, 4, 0, 8, 8, 2, 45},
          Expected{"nccl_topo/aws-p4d-a100-topo.xml", "", 8, 6, 0, 4, 4, 2, 12.5},
          Expected{"nccl_topo/azure-ndv4-topo.xml", "a100-sxm-40gb", 8, 6, 0, 8, 4, 4, 25},
          Expected{"nccl_topo/azure-ndv5-topo.xml", "h100-sxm-80gb", 8, 4, 0, 8, 8, 2, 50},
          Expected{"nccl_topo/azure-ndv2-topo.xml", "v100-sxm-32gb", 8, 1, 0, 1, 0, 2, 12.5},
          Expected{"nccl_topo/azure-ncv4-topo.xml", "a100-sxm-80gb", 4, 0, 0, 0, 0, 4, 0},
          Expected{"nccl_topo/oci-a100-b4-flattened.xml", "a100-sxm-40gb", 8, 6, 0, 8, 4, 4, 25},
          Expected{"nvidia_smi_topo/hgx-h200x8-8nic.txt", "h200-sxm-141gb", 8, 4, 0, 8, 8, 2, 50},
          Expected{"nvidia_smi_topo/hgx-a100x8-4nic.txt", "a100-sxm-80gb", 8, 6, 0, 4, 0, 2, 25},
          Expected{"nvidia_smi_topo/dgx1-v100x8-hybrid-cube-mesh-oldformat.txt", "v100-sxm-16gb", 8, 0, 16, 4, 4, 2,
                   12.5},
          Expected{"nvidia_smi_topo/litgpt-nvlink-partially-connected.txt", "v100-sxm-16gb", 4, 0, 2, 0, 0, 2, 0},
          Expected{"nvidia_smi_topo/litgpt-nvlink-not-connected.txt", "a100-sxm-80gb", 4, 0, 0, 0, 0, 1, 0},
          Expected{"nvidia_smi_topo/litgpt-all-nvlink-connected.txt", "a100-sxm-80gb", 4, 6, 0, 0, 0, 1, 0},
          Expected{"nvidia_smi_topo/litgpt-nvlink-all-gpu-connected-but-other-connected.txt", "a100-sxm-80gb", 8, 6, 0,
                   8, 4, 2, 25}}) {
        SCOPED_TRACE(one.file);
        const ClusterSpec cluster = import({file(one.file)}, {one.device, "", NvlinkChoice::by_file}).cluster;
        EXPECT_EQ(cluster.devices_per_node, one.devices);
        EXPECT_EQ(cluster.node_switches, one.switches);
        EXPECT_EQ(cluster.inside.nvlink_pairs.size(), static_cast<std::size_t>(one.pairs));
        EXPECT_EQ(cluster.nics_per_node, one.nics);
        EXPECT_EQ(cluster.inside.pcie_switches, one.pcie_switches);
        EXPECT_EQ(cluster.inside.sockets, one.sockets);
        EXPECT_DOUBLE_EQ(cluster.nic.bandwidth_gb_per_s_per_direction.value, one.nic_gb_per_s);
        expect_self_contained(cluster);
    }
}

TEST_F(ImportSamples, EachGpuGetsItsNearestNic) {
    for (const char* name : {"nvidia_smi_topo/hgx-h200x8-8nic.txt", "nccl_topo/azure-ndv5-topo.xml"}) {
        const ClusterSpec cluster =
            import({file(name)}, {name[1] == 'v' ? "h200-sxm-141gb" : "h100-sxm-80gb", "", NvlinkChoice::by_file})
                .cluster;
        EXPECT_EQ(cluster.inside.device_ports, cluster.inside.nic_ports) << name;
    }
}

TEST_F(ImportSamples, FabricsBecomeClusters) {
    const ClusterSpec slurm = import({file("slurm/topology-tree-topograph.conf")}, {}, "dgx-h100").cluster;
    EXPECT_EQ(slurm.nodes, 96);
    EXPECT_EQ(slurm.fabric, FabricKind::fat_tree);
    EXPECT_EQ(slurm.fabric_shape.levels, 3);
    EXPECT_EQ(slurm.fabric_shape.nodes_per_leaf, 8);
    EXPECT_EQ(slurm.fabric_shape.leaves_per_pod, 2);
    expect_self_contained(slurm);
    const Result ib = import({file("ib/ibnetdiscover-example.out")}, {}, "dgx-h100");
    EXPECT_EQ(ib.cluster.fabric, FabricKind::rail_optimised);  // a host's adapters are connected to different leaves
    EXPECT_EQ(ib.cluster.nodes, 122);
    EXPECT_TRUE(has_note(ib.notes, "nodes have 4 ports on this fabric"));
    EXPECT_DOUBLE_EQ(ib.cluster.nic.bandwidth_gb_per_s_per_direction.value, 50);
    expect_self_contained(ib.cluster);
    for (const char* model : {"small-tree", "medium", "nvl72"}) {
        SCOPED_TRACE(model);
        expect_self_contained(import({file(std::string("topograph/") + model + ".yaml")}, {}, "dgx-h100").cluster);
    }
}

}  // namespace
}  // namespace orrery::topologies::test
