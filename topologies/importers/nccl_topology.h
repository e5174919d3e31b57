// NCCL's topology XML (NCCL_TOPO_DUMP_FILE, NCCL_TOPO_FILE): one node's sockets, PCIe tree, GPUs with their NVLinks,
// and NICs, as NCCL v2.28 reads it (src/graph/xml.cc, topo.cc). This is the file's content; node_description.h
// interprets it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topologies/importers/foreign_text.h"

namespace orrery::topologies {

struct NcclNvlink {
    std::string target;             // bus id; "fffffff:ff:ff.0" in virtual machines that hide their NVSwitches
    std::int64_t count = 0;         // bonded NVLinks
    std::int64_t target_class = 0;  // PCI class: 0x068000 NVSwitch, 0x068001 CPU, 0x03.... GPU
};

struct NcclGpu {
    std::int64_t dev = 0;
    std::int64_t compute_capability = 0;  // sm: 90
    std::int64_t rank = -1;               // -1: not in the file
    bool gdr = false;
    std::vector<NcclNvlink> nvlinks;
    double c2c_gb_per_s_per_direction = 0;  // NVLink-C2C to the CPU; 0: none
};

struct NcclNet {
    std::string name;  // "mlx5_0"
    std::int64_t dev = 0;
    double gb_per_s_per_direction = 0;  // from the file's Mb/s; 1.25 if it states none, as in NCCL
    double latency_us = 0;
    std::int64_t port = 0;
    bool gdr = false, collective_offload = false;
};

/// A PCIe function: a bridge, a GPU, a NIC, an NVSwitch.
struct NcclPci {
    std::string busid;
    std::int64_t device_class = 0;        // 0x060400 bridge, 0x03.... GPU, 0x02.... NIC, 0x068000 NVSwitch
    std::int64_t vendor = 0, device = 0;  // 0: not stated
    std::int64_t cpu = 0;                 // index into cpus
    std::int64_t parent = -1;             // index into pcis; -1: attached to the CPU itself
    bool link_known = false;              // the file states width and rate
    double gb_per_s_per_direction = 0;    // width * rate / 80 by NCCL's table; unknown width 16, unknown rate 8 GT/s
    std::optional<NcclGpu> gpu;
    std::vector<NcclNet> nets;
    [[nodiscard]] bool is_bridge() const { return device_class == 0x060400; }
    [[nodiscard]] bool is_gpu() const { return gpu.has_value() || device_class >> 16 == 0x03; }
    [[nodiscard]] bool is_nic() const { return !nets.empty() || device_class >> 16 == 0x02; }
};

struct NcclCpu {
    std::int64_t numa = 0;
    std::string host_hash;  // "" if the file has none; files of a multi-node NVLink domain have several
    std::string arch, vendor;
    std::int64_t family = 0, model = 0;
    std::vector<NcclNet> nets;  // NICs without a PCI function (network sockets)
};

struct NcclTopology {
    std::vector<NcclCpu> cpus;
    std::vector<NcclPci> pcis;  // in the order of the file, so that a parent precedes its children
    Notes notes;
};

/// Throws InputError naming file, element, attribute, value and what is allowed. A DOCTYPE is refused, only XML's five
/// predefined entities are expanded, and depth (32), elements (65,536) and the length of values (255, as in NCCL) are
/// limited.
[[nodiscard]] NcclTopology nccl_topology_from_text(const std::string& text, const std::string& file);

}  // namespace orrery::topologies
