#include <functional>

#include "tests/unit/importers/importers.h"
#include "topologies/importers/nccl_graph.h"
#include "topologies/importers/nccl_topology.h"

namespace orrery::topologies::test {
namespace {

std::int64_t count(const NcclTopology& topology, bool (NcclPci::*is)() const) {
    std::int64_t found = 0;
    for (const NcclPci& pci : topology.pcis) found += (pci.*is)() ? 1 : 0;
    return found;
}

TEST(NcclTopology, ReadsSocketsBridgesGpusAndNics) {
    const NcclTopology topology = nccl_topology_from_text(data_text("hgx4.topo.xml"), "f.xml");
    ASSERT_EQ(topology.cpus.size(), 2U);
    EXPECT_EQ(topology.cpus[1].numa, 1);
    EXPECT_EQ(topology.cpus[1].vendor, "GenuineIntel");
    EXPECT_EQ(topology.cpus[1].model, 143);
    EXPECT_EQ(topology.pcis.size(), 12U);
    EXPECT_EQ(count(topology, &NcclPci::is_bridge), 4);
    EXPECT_EQ(count(topology, &NcclPci::is_gpu), 4);
    EXPECT_EQ(count(topology, &NcclPci::is_nic), 4);
    const NcclPci& gpu = topology.pcis[7];
    EXPECT_EQ(gpu.busid, "0000:31:00.0");
    EXPECT_EQ(gpu.cpu, 1);
    EXPECT_EQ(gpu.parent, 6);
    EXPECT_EQ(gpu.device, 0x2330);
    EXPECT_DOUBLE_EQ(gpu.gb_per_s_per_direction, 48);  // 16 lanes * 24 Gb/s / 8
    ASSERT_TRUE(gpu.gpu);
    EXPECT_EQ(gpu.gpu->dev, 2);
    EXPECT_EQ(gpu.gpu->compute_capability, 90);
    ASSERT_EQ(gpu.gpu->nvlinks.size(), 2U);
    EXPECT_EQ(gpu.gpu->nvlinks[1].target, "0000:f1:00.0");
    EXPECT_EQ(gpu.gpu->nvlinks[1].count, 9);
    EXPECT_EQ(gpu.gpu->nvlinks[1].target_class, 0x068000);
    const NcclPci& nic = topology.pcis[8];
    ASSERT_EQ(nic.nets.size(), 1U);
    EXPECT_EQ(nic.nets[0].name, "mlx5_2");
    EXPECT_DOUBLE_EQ(nic.nets[0].gb_per_s_per_direction, 50);
    EXPECT_TRUE(nic.nets[0].collective_offload);
    EXPECT_TRUE(topology.notes.list().empty());
}

TEST(NcclTopology, ReadsStaticFilesWithoutGpuElements) {
    const NcclTopology topology = nccl_topology_from_text(data_text("static.topo.xml"), "f.xml");
    EXPECT_EQ(count(topology, &NcclPci::is_gpu), 4);
    EXPECT_EQ(count(topology, &NcclPci::is_nic), 2);
    EXPECT_FALSE(topology.pcis[1].gpu);
    EXPECT_DOUBLE_EQ(topology.pcis[1].gb_per_s_per_direction, 24);
}

/// A file with one <pci> with the given attributes and children.
std::string one_pci(const std::string& attributes, const std::string& inside = "") {
    return "<system version=\"1\"><cpu numaid=\"0\"><pci " + attributes + ">" + inside + "</pci></cpu></system>";
}
const std::string kGpuPci = "busid=\"0:1:0.0\" class=\"0x030200\"";

TEST(NcclTopology, UnknownPcieSpeedsAreTakenAsInNccl) {
    const auto read = [](const std::string& link) { return nccl_topology_from_text(one_pci(kGpuPci + link), "f.xml"); };
    EXPECT_DOUBLE_EQ(read("").pcis[0].gb_per_s_per_direction, 12);
    EXPECT_DOUBLE_EQ(read(" link_speed=\"\" link_width=\"0\"").pcis[0].gb_per_s_per_direction, 12);
    EXPECT_DOUBLE_EQ(read(" link_speed=\"Unknown\" link_width=\"8\"").pcis[0].gb_per_s_per_direction, 6);
    EXPECT_DOUBLE_EQ(read(" link_speed=\"64.0 GT/s PCIe\" link_width=\"16\"").pcis[0].gb_per_s_per_direction, 96);
    EXPECT_DOUBLE_EQ(read(" link_speed=\"2.5 GT/s\" link_width=\"1\"").pcis[0].gb_per_s_per_direction, 15.0 / 80);
    EXPECT_TRUE(has_note(read("").notes.list(), "link_width: not stated"));
    EXPECT_TRUE(has_note(read(" link_width=\"4\" link_speed=\"9 GT/s\"").notes.list(), "'9 GT/s': not known"));
}

TEST(NcclTopology, NicsWithoutSpeedAreTakenAsInNccl) {
    const NcclTopology topology = nccl_topology_from_text(
        one_pci("busid=\"0:1:0.0\" class=\"0x020000\"",
                "<nic><net name=\"a\" dev=\"0\" speed=\"-1\"/><net name=\"b\" dev=\"1\"/><net name=\"c\"/>"
                "<net name=\"d\" dev=\"3\" net=\"0\"/><gin dev=\"4\"/></nic>"),
        "f.xml");
    ASSERT_EQ(topology.pcis[0].nets.size(), 2U);
    EXPECT_DOUBLE_EQ(topology.pcis[0].nets[0].gb_per_s_per_direction, 1.25);
    EXPECT_DOUBLE_EQ(topology.pcis[0].nets[1].gb_per_s_per_direction, 1.25);
    for (const char* note : {"speed: not stated", "without dev", "net=\"0\"", "<gin>: not read"}) {
        EXPECT_TRUE(has_note(topology.notes.list(), note)) << note;
    }
}

/// As in a file of EC2's images.
TEST(NcclTopology, AMissingClassFollowsFromTheChildElement) {
    const auto first = [](const std::string& inside) {
        return nccl_topology_from_text(one_pci("busid=\"0:1:0.0\"", inside), "f.xml").pcis.front();
    };
    EXPECT_TRUE(first("<gpu dev=\"0\" sm=\"90\"/>").is_gpu());
    EXPECT_TRUE(first("<nic><net name=\"a\" dev=\"0\" speed=\"100000\"/></nic>").is_nic());
    EXPECT_TRUE(first("<pci busid=\"0:2:0.0\" class=\"0x030200\"/>").is_bridge());
}

TEST(NcclTopology, ReadsRcclsVersion) {
    const NcclTopology topology =
        nccl_topology_from_text("<system version=\"2\"><cpu numaid=\"0\"><pci " + kGpuPci +
                                    "><gpu dev=\"0\" sm=\"94\"><xgmi target=\"0:2\"/>" + "</gpu></pci></cpu></system>",
                                "f.xml");
    EXPECT_EQ(count(topology, &NcclPci::is_gpu), 1);
    EXPECT_TRUE(has_note(topology.notes.list(), "<xgmi>: not read"));
}

TEST(NcclTopology, NotesUnknownElementsAndAttributes) {
    const NcclTopology topology = nccl_topology_from_text(
        "<system version=\"1\"><cpu numaid=\"0\" colour=\"blue\"><pci busid=\"0:1:0.0\" class=\"0x030200\">"
        "<gpu dev=\"0\" sm=\"100\" mlopart=\"1\"><c2c bw=\"44712\" count=\"10\"/></gpu><pcilink target=\"1\"/></pci>"
        "</cpu><fan/></system>",
        "f.xml");
    EXPECT_DOUBLE_EQ(topology.pcis[0].gpu->c2c_gb_per_s_per_direction, 447.12);
    EXPECT_EQ(topology.pcis[0].gpu->rank, -1);
    for (const char* note : {"<cpu> 'colour'", "<gpu> 'mlopart'", "<pcilink>", "<fan>"}) {
        EXPECT_TRUE(has_note(topology.notes.list(), note)) << note;
    }
}

struct BadXml {
    const char* name;
    std::string text;
    std::vector<std::string> words;
    friend std::ostream& operator<<(std::ostream& out, const BadXml& one) { return out << one.name; }
};

std::string nested(int depth) {
    std::string text = "<system version=\"1\"><cpu numaid=\"0\">";
    for (int i = 0; i < depth; ++i) text += "<pci busid=\"" + std::to_string(i) + "\" class=\"0x060400\">";
    for (int i = 0; i < depth; ++i) text += "</pci>";
    return text + "</cpu></system>";
}

class BadXmlTest : public testing::TestWithParam<BadXml> {};

TEST_P(BadXmlTest, ErrorNamesThePlace) {
    const std::string message = refusal_of([] { (void)nccl_topology_from_text(GetParam().text, "f.xml"); });
    EXPECT_EQ(message.rfind("f.xml", 0), 0U) << message;
    for (const std::string& word : GetParam().words) EXPECT_NE(message.find(word), std::string::npos) << message;
}

const std::string kGpu = "<gpu dev=\"0\" sm=\"90\">";

INSTANTIATE_TEST_SUITE_P(
    NcclTopology, BadXmlTest,
    testing::Values(
        BadXml{"empty", "", {"not well-formed XML"}}, BadXml{"text", "hello", {"not well-formed XML"}},
        BadXml{"truncated", "<system version=\"1\">\n<cpu numaid=\"0\">", {"line 2", "not well-formed XML"}},
        BadXml{"doctype",
               "<!DOCTYPE system [<!ENTITY a \"b\">]><system version=\"1\"><cpu numaid=\"0\"/></system>",
               {"DOCTYPE"}},
        BadXml{"other_root", "<graphs version=\"1\"/>", {"<graphs>", "allowed: <system>"}},
        BadXml{"two_roots", "<system version=\"1\"/><system/>", {"one root element"}},
        BadXml{"version", "<system version=\"3\"/>", {"/system: version: got '3'; allowed: 1, or RCCL's 2"}},
        BadXml{"no_cpu", "<system version=\"1\"/>", {"no <cpu>"}},
        BadXml{"nul", std::string("<system\0/>", 10), {"a NUL"}}, BadXml{"deep", nested(40), {"depth", "more than 32"}},
        BadXml{"very_deep", nested(60000), {"depth"}},
        BadXml{"twice", "<system version=\"1\"><cpu numaid=\"0\" numaid=\"1\"/></system>", {"'numaid'", "twice"}},
        BadXml{"long_value", one_pci("busid=\"" + std::string(256, '0') + "\" class=\"0\""), {"at most 255"}},
        BadXml{
            "no_numa", "<system version=\"1\"><cpu/></system>", {"/system/cpu[1]: numaid: the attribute is missing"}},
        BadXml{"same_numa", "<system><cpu numaid=\"1\"/><cpu numaid=\"1\"/></system>", {"cpu[2]: numaid: got '1'"}},
        BadXml{"busid", one_pci("busid=\"zz\" class=\"0x030200\""), {"/system/cpu[1]/pci[1]: busid: got 'zz'"}},
        BadXml{"class", one_pci("busid=\"0:1\" class=\"gpu\""), {"class: got 'gpu'"}},
        BadXml{"width", one_pci(kGpuPci + " link_width=\"1e9\""), {"link_width: got '1e9'", "from 0 to 64"}},
        BadXml{"negative_width", one_pci(kGpuPci + " link_width=\"-16\""), {"link_width: got '-16'"}},
        BadXml{"same_bus",
               "<system><cpu numaid=\"0\"><pci busid=\"0:1\" class=\"0x02\"/><pci busid=\"0:1\" class=\"0x02\"/></cpu>"
               "</system>",
               {"pci[2]: busid"}},
        BadXml{"dev", one_pci(kGpuPci, "<gpu dev=\"x\" sm=\"90\"/>"), {"gpu[1]: dev: got 'x'"}},
        BadXml{"sm", one_pci(kGpuPci, "<gpu dev=\"0\" sm=\"0\"/>"), {"sm: got '0'"}},
        BadXml{"two_gpus", one_pci(kGpuPci, kGpu + "</gpu><gpu dev=\"1\" sm=\"90\"/>"), {"a second <gpu>"}},
        BadXml{"overflow", one_pci(kGpuPci, "<gpu dev=\"99999999999999999999\" sm=\"90\"/>"), {"dev: got '999"}},
        BadXml{"count",
               one_pci(kGpuPci, kGpu + "<nvlink target=\"0:1:0.0\" count=\"-1\" tclass=\"0x03\"/></gpu>"),
               {"nvlink[1]: count: got '-1'"}},
        BadXml{"target",
               one_pci(kGpuPci, kGpu + "<nvlink target=\"0:9:0.0\" count=\"1\" tclass=\"0x030200\"/></gpu>"),
               {"target", "'0:9:0.0'", "a GPU of this file"}},
        BadXml{"latency", one_pci(kGpuPci, "<nic><net dev=\"0\" latency=\"nan\"/></nic>"), {"latency: got 'nan'"}},
        BadXml{"speed", one_pci(kGpuPci, "<nic><net dev=\"0\" speed=\"fast\"/></nic>"), {"speed: got 'fast'"}}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(NcclTopology, ExpandsOnlyPredefinedEntities) {
    const NcclTopology topology =
        nccl_topology_from_text("<system version=\"1\"><cpu numaid=\"0\" vendor=\"&lt;&a;\"/></system>", "f.xml");
    EXPECT_EQ(topology.cpus[0].vendor, "<&a;");
}

TEST(NcclGraph, ReadsChannelsAndSpeeds) {
    const NcclGraphs graphs = nccl_graphs_from_text(data_text("ring.graph.xml"), "g.xml");
    ASSERT_EQ(graphs.graphs.size(), 2U);
    const NcclGraph& ring = graphs.graphs[0];
    EXPECT_EQ(name_of_graph(ring.id), "ring");
    EXPECT_EQ(name_of_pattern(ring.pattern), "ring");
    EXPECT_DOUBLE_EQ(ring.intra_gb_per_s_per_channel, 20);
    EXPECT_DOUBLE_EQ(ring.inter_gb_per_s_per_channel, 12);
    EXPECT_DOUBLE_EQ(ring.inter_latency_us, 0.5);
    EXPECT_EQ(ring.intra_path, "NVL");
    EXPECT_EQ(ring.inter_path, "PIX");
    ASSERT_EQ(ring.channels.size(), 2U);
    EXPECT_EQ(ring.channels[1].gpus, (std::vector<std::int64_t>{3, 2, 1, 0}));
    EXPECT_EQ(ring.channels[1].nets, (std::vector<std::int64_t>{1, 0}));
    EXPECT_EQ(name_of_graph(graphs.graphs[1].id), "NVLS");
    EXPECT_TRUE(graphs.graphs[1].channels.empty());
}

TEST(NcclGraph, ErrorsNameTheAttribute) {
    const std::string good = data_text("ring.graph.xml");
    const auto corrupted = [&](const std::string& from, const std::string& to) {
        std::string text = good;
        text.replace(text.find(from), from.size(), to);
        return refusal_of([&] { (void)nccl_graphs_from_text(text, "g.xml"); });
    };
    EXPECT_NE(corrupted("nchannels=\"2\"", "nchannels=\"3\"").find("nchannels: got '3'; allowed: 2"),
              std::string::npos);
    EXPECT_NE(corrupted("pattern=\"4\"", "pattern=\"9\"").find("pattern: got '9'"), std::string::npos);
    EXPECT_NE(corrupted("id=\"0\"", "id=\"3\"").find("id: got '3'"), std::string::npos);
    EXPECT_NE(corrupted("speedintra=\"20\"", "speedintra=\"inf\"").find("speedintra: got 'inf'"), std::string::npos);
    EXPECT_NE(corrupted("speedintra=\"20\"", "speedintra=\"0\"").find("speedintra: got '0'"), std::string::npos);
    EXPECT_NE(corrupted("typeintra=\"NVL\"", "typeintra=\"ABC\"").find("typeintra: got 'ABC'"), std::string::npos);
    EXPECT_NE(corrupted("<gpu dev=\"1\"/>", "<gpu dev=\"0\"/>").find("dev: got '0'"), std::string::npos);
    EXPECT_NE(corrupted("<graphs version=\"1\">", "<graphs version=\"7\">").find("version: got '7'"),
              std::string::npos);
}

class NcclSamples : public Samples {};

TEST_F(NcclSamples, AreReadCompletely) {
    struct Expected {
        const char* file;
        std::size_t cpus;
        std::int64_t bridges, gpus, nics;
    };
    for (const Expected& one :
         {Expected{"aws-p4d-a100-topo.xml", 2, 4, 8, 4}, Expected{"azure-ndv2-topo.xml", 2, 0, 8, 1},
          Expected{"azure-ndv4-topo.xml", 4, 4, 8, 8}, Expected{"azure-ndv5-topo.xml", 2, 8, 8, 8},
          Expected{"azure-ncv4-topo.xml", 4, 0, 4, 0}, Expected{"oci-a100-b4-flattened.xml", 4, 4, 8, 8},
          Expected{"oci-h100-dump.xml", 2, 24, 8, 8}}) {
        SCOPED_TRACE(one.file);
        const NcclTopology topology = nccl_topology_from_text(text(std::string("nccl_topo/") + one.file), one.file);
        EXPECT_EQ(topology.cpus.size(), one.cpus);
        EXPECT_EQ(count(topology, &NcclPci::is_bridge), one.bridges);
        EXPECT_EQ(count(topology, &NcclPci::is_gpu), one.gpus);
        EXPECT_EQ(count(topology, &NcclPci::is_nic), one.nics);
    }
}

TEST_F(NcclSamples, DumpOfEightH100) {
    const NcclTopology topology = nccl_topology_from_text(text("nccl_topo/oci-h100-dump.xml"), "oci");
    std::size_t nets = 0;
    for (const NcclPci& pci : topology.pcis) {
        nets += pci.nets.size();
        for (const NcclNet& net : pci.nets) EXPECT_DOUBLE_EQ(net.gb_per_s_per_direction, 22.5);  // 180000 Mb/s
        if (!pci.is_gpu()) continue;
        ASSERT_TRUE(pci.gpu);
        EXPECT_EQ(pci.gpu->compute_capability, 90);
        EXPECT_EQ(pci.device, 0x2330);
        std::int64_t links = 0;
        for (const NcclNvlink& link : pci.gpu->nvlinks) links += link.count;
        EXPECT_EQ(links, 18);
        EXPECT_EQ(pci.gpu->nvlinks.size(), 4U);
    }
    EXPECT_EQ(nets, 16U);
}

TEST_F(NcclSamples, GraphOfFourA100OnPcie) {
    const NcclGraphs graphs = nccl_graphs_from_text(text("nccl_topo/azure-ncv4-graph.xml"), "g");
    ASSERT_EQ(graphs.graphs.size(), 3U);
    EXPECT_EQ(graphs.graphs[0].channels.size(), 2U);
    EXPECT_EQ(graphs.graphs[1].channels.size(), 4U);
    EXPECT_EQ(graphs.graphs[2].channels.size(), 4U);
    EXPECT_DOUBLE_EQ(graphs.graphs[0].intra_gb_per_s_per_channel, 12);
    EXPECT_EQ(graphs.graphs[0].intra_path, "SYS");
    EXPECT_EQ(graphs.graphs[0].channels[1].gpus, (std::vector<std::int64_t>{0, 3, 2, 1}));
}

}  // namespace
}  // namespace orrery::topologies::test
