// One node as described by a foreign file, in the terms of a ClusterSpec.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topologies/importers/nccl_topology.h"
#include "topologies/importers/nvidia_smi_topo.h"

namespace orrery::topologies {

struct NodeGpu {
    std::string name;                     // "GPU0", or the bus id
    std::int64_t pci_device = 0;          // 0x2330: H100 SXM; 0: not stated
    std::int64_t compute_capability = 0;  // 90; 0: not stated
    std::int64_t socket = 0;
    std::int64_t pcie_switch = -1;  // -1: on the socket itself, or not stated
};
struct NodeNic {
    std::string name;  // "mlx5_0", "mlx5_0+mlx5_1" of two ports, or the bus id
    std::int64_t socket = 0;
    std::int64_t pcie_switch = -1;
    double gb_per_s_per_direction = 0;  // of all its ports; 0: not stated
    bool is_efa = false;                // the PCI vendor is Amazon
};
struct NodePair {
    std::int64_t a = 0, b = 0;  // GPUs
    std::int64_t nvlinks = 0;
};

struct NodeDescription {
    std::string format;  // "NCCL topology XML", "nvidia-smi topo -m"
    std::vector<NodeGpu> gpus;
    std::vector<NodeNic> nics;
    std::vector<std::vector<SmiPath>> gpu_to_nic;  // path from each GPU to each NIC
    std::int64_t sockets = 1;                      // NUMA nodes that the file distinguishes
    std::vector<std::int64_t> switch_sockets;      // the socket of each PCIe switch
    /// NVSwitches that join all GPUs; -1: there are some, but their number is hidden (virtual machines) or not stated.
    std::int64_t nvswitches = 0;
    std::int64_t nvlinks_per_gpu = 0;  // of the GPU that has most; 0: none, or not stated (tells_nvlinks)
    std::vector<NodePair> pairs;       // NVLinks from GPU to GPU
    bool tells_nvlinks = true;         // false: a static cloud file, completed by NCCL at run time
    double c2c_gb_per_s_per_direction = 0;
    /// PCIe bandwidth of GPUs and of PCIe switches' uplinks by NCCL's table: 12 for Gen3 x16, 24 Gen4, 48 Gen5; 0: not
    /// stated.
    double gpu_pcie_gb_per_s = 0, switch_pcie_gb_per_s = 0;
    std::string cpu_vendor;                    // "GenuineIntel", "AuthenticAMD", ""
    double socket_gb_per_s_per_direction = 0;  // between sockets, NCCL's figure for these CPUs; 0: not stated
    Notes notes;
};

/// GPUs are ordered by their number, else by bus id. The ports of one PCIe function are one NIC, and nested PCIe
/// switches are one switch. Throws InputError when the file holds no GPU, or several hosts.
[[nodiscard]] NodeDescription describe_node(const NcclTopology& topology, const std::string& file);
[[nodiscard]] NodeDescription describe_node(const SmiTopo& topo, const std::string& file);

}  // namespace orrery::topologies
