#include "tests/unit/importers/importers.h"
#include "topologies/importers/node_description.h"

namespace orrery::topologies::test {
namespace {

TEST(SmiTopo, ReadsTerminalOutput) {
    const SmiTopo topo = smi_topo_from_text(data_text("hgx4.smi.txt"), "t");
    EXPECT_EQ(topo.gpus, (std::vector<std::string>{"GPU0", "GPU1", "GPU2", "GPU3"}));
    EXPECT_EQ(topo.nics, (std::vector<std::string>{"mlx5_0", "mlx5_3"}));
    EXPECT_EQ(topo.gpu_to_gpu[1][3], (SmiConnection{SmiPath::nvlink, 18}));
    EXPECT_EQ(topo.gpu_to_gpu[1][1], (SmiConnection{SmiPath::self, 0}));
    EXPECT_EQ(topo.gpu_to_nic[0][0].path, SmiPath::pix);
    EXPECT_EQ(topo.gpu_to_nic[1][0].path, SmiPath::node);
    EXPECT_EQ(topo.gpu_to_nic[3][0].path, SmiPath::sys);
    EXPECT_EQ(topo.cpu_affinity[2], "32-63");
    EXPECT_EQ(topo.numa_affinity, (std::vector<std::int64_t>{0, 0, 1, 1}));
}

TEST(SmiTopo, ReadsAlignedColumnsAndOldNicNames) {
    const SmiTopo topo = smi_topo_from_text(data_text("pairs.smi.txt"), "t");
    EXPECT_EQ(topo.nics, std::vector<std::string>{"mlx5_0"});
    EXPECT_EQ(topo.gpu_to_gpu[2][3], (SmiConnection{SmiPath::nvlink, 4}));
    EXPECT_EQ(topo.gpu_to_gpu[0][2].path, SmiPath::sys);
    EXPECT_EQ(topo.cpu_affinity[3], "8-15");
    EXPECT_EQ(topo.numa_affinity[3], -1);
}

TEST(SmiTopo, NamesArePrintable) {
    const SmiTopo topo = smi_topo_from_text("GPU0 ib\x07\xc3\nGPU0 X SYS\n", "t");
    EXPECT_EQ(describe_node(topo, "t").nics.front().name, "ib??");
}

TEST(SmiTopo, ReadsOneGpu) {
    const SmiTopo topo = smi_topo_from_text("\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-7\tN/A\n", "t");
    EXPECT_EQ(topo.gpus.size(), 1U);
    EXPECT_EQ(topo.cpu_affinity[0], "0-7");
    EXPECT_EQ(topo.numa_affinity[0], -1);
}

TEST(SmiTopo, ErrorsNameThePlace) {
    const auto refused = [](const std::string& text) {
        return refusal_of([&] { (void)smi_topo_from_text(text, "t"); });
    };
    EXPECT_NE(refused("").find("no line with the columns"), std::string::npos);
    EXPECT_NE(refused("GPU0 X 0-7\n").find("no line with the columns"), std::string::npos);
    EXPECT_NE(refused("GPU0 GPU1\nGPU0 X NV1\n").find("row GPU1: missing"), std::string::npos);
    EXPECT_NE(refused("GPU0 GPU1\nGPU0 X\n").find("line 2: row GPU0: got 1 values; allowed: 2"), std::string::npos);
    EXPECT_NE(refused("GPU0 GPU1\nGPU0 X NV1\nGPU1 NV2 X\n").find("row GPU1, column GPU0"), std::string::npos);
    EXPECT_NE(refused("GPU0 GPU1\nGPU0 X ABC\nGPU1 PIX X\n").find("line 2: row GPU0, column GPU1: got 'ABC'"),
              std::string::npos);
    EXPECT_NE(refused("GPU0 GPU1\nGPU0 X X\nGPU1 PIX X\n").find("X on the diagonal only"), std::string::npos);
    EXPECT_NE(refused("GPU0 GPU1\nGPU0 PIX PIX\n").find("X on the diagonal only"), std::string::npos);
    EXPECT_NE(refused("GPU0 GPU1\nGPU0 X NV0\n").find("got 'NV0'"), std::string::npos);
    EXPECT_NE(refused("GPU0 GPU1\nGPU0 X NV99999999999999999999\n").find("got 'NV999"), std::string::npos);
    EXPECT_NE(refused("GPU0 GPU0\n").find("each device once"), std::string::npos);
    EXPECT_NE(refused("GPU0 NIC0 GPU1\n").find("the GPUs before the NICs"), std::string::npos);
    EXPECT_NE(refused("GPU0\nGPU0 X\nGPU0 X\n").find("one row per device"), std::string::npos);
    EXPECT_NE(refused("GPU0\nGPU7 X\n").find("a device that has a column"), std::string::npos);
    std::string wide;
    for (int i = 0; i < 2000; ++i) wide += "GPU" + std::to_string(i) + " ";
    EXPECT_NE(refused(wide).find("more than 1024"), std::string::npos);
}

class SmiSamples : public Samples {};

TEST_F(SmiSamples, AreReadCompletely) {
    const auto read = [&](const char* name) {
        return smi_topo_from_text(text(std::string("nvidia_smi_topo/") + name), name);
    };
    const SmiTopo h200 = read("hgx-h200x8-8nic.txt");
    EXPECT_EQ(h200.gpus.size(), 8U);
    EXPECT_EQ(h200.nics.size(), 8U);
    EXPECT_EQ(h200.gpu_to_gpu[0][7], (SmiConnection{SmiPath::nvlink, 18}));
    // Each GPU shares a PCIe bridge with exactly one NIC.
    const std::vector<std::size_t> nearest{4, 1, 0, 3, 6, 7, 5, 2};
    for (std::size_t gpu = 0; gpu < 8; ++gpu) {
        for (std::size_t nic = 0; nic < 8; ++nic) {
            EXPECT_EQ(h200.gpu_to_nic[gpu][nic].path == SmiPath::pix, nic == nearest[gpu]) << gpu << " " << nic;
        }
    }
    EXPECT_EQ(h200.numa_affinity, (std::vector<std::int64_t>{0, 0, 0, 0, 1, 1, 1, 1}));

    const SmiTopo a100 = read("hgx-a100x8-4nic.txt");
    EXPECT_EQ(a100.nics, (std::vector<std::string>{"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"}));
    EXPECT_EQ(a100.gpu_to_gpu[3][4], (SmiConnection{SmiPath::nvlink, 12}));
    EXPECT_EQ(a100.gpu_to_nic[2][2].path, SmiPath::pxb);
    EXPECT_EQ(a100.gpu_to_nic[5][0].path, SmiPath::sys);

    const SmiTopo cube = read("dgx1-v100x8-hybrid-cube-mesh-oldformat.txt");
    EXPECT_EQ(cube.gpus.size(), 8U);
    EXPECT_EQ(cube.nics, (std::vector<std::string>{"mlx5_0", "mlx5_2", "mlx5_1", "mlx5_3"}));
    for (std::size_t gpu = 0; gpu < 8; ++gpu) {  // six NVLinks each
        std::int64_t links = 0;
        for (const SmiConnection& one : cube.gpu_to_gpu[gpu]) links += one.nvlinks;
        EXPECT_EQ(links, 6) << gpu;
    }

    EXPECT_EQ(read("litgpt-all-nvlink-connected.txt").gpu_to_gpu[0][3].nvlinks, 12);
    EXPECT_EQ(read("litgpt-nvlink-all-gpu-connected-but-other-connected.txt").nics.size(), 10U);
    EXPECT_EQ(read("litgpt-nvlink-not-connected.txt").gpu_to_gpu[0][3].path, SmiPath::phb);
    const SmiTopo partial = read("litgpt-nvlink-partially-connected.txt");
    EXPECT_EQ(partial.gpu_to_gpu[0][1].nvlinks, 1);
    EXPECT_EQ(partial.gpu_to_gpu[0][2].path, SmiPath::sys);
}

}  // namespace
}  // namespace orrery::topologies::test
