// The table that `nvidia-smi topo -m` prints: the kind of path from each GPU of a node to each other GPU and NIC. It
// holds no rates. Columns are separated by tabs or aligned, terminal underlining is ignored, and NICs are named NIC0
// with a legend or, by old drivers, mlx5_0.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topologies/importers/foreign_text.h"

namespace orrery::topologies {

/// From near to far; comparisons rely on the order.
enum class SmiPath : std::uint8_t {
    self,    // X
    nvlink,  // NV#
    pix,     // at most one PCIe bridge
    pxb,     // several PCIe bridges, no host bridge
    phb,     // a PCIe host bridge
    node,    // between host bridges of one NUMA node
    sys,     // between NUMA nodes
};

struct SmiConnection {
    SmiPath path = SmiPath::sys;
    std::int64_t nvlinks = 0;  // bonded, where path is nvlink
    bool operator==(const SmiConnection&) const = default;
};

struct SmiTopo {
    std::vector<std::string> gpus;  // "GPU0" …, in the order of the columns
    std::vector<std::string> nics;  // with the legend's name if there is one: "mlx5_0"
    std::vector<std::vector<SmiConnection>> gpu_to_gpu;
    std::vector<std::vector<SmiConnection>> gpu_to_nic;
    std::vector<std::string> cpu_affinity;    // by GPU; "" if the table has none
    std::vector<std::int64_t> numa_affinity;  // by GPU; -1 if the table has none or several
    Notes notes;
};

[[nodiscard]] std::string name_of(SmiPath path);

/// Throws InputError naming file, line, row, column, value and what is allowed.
[[nodiscard]] SmiTopo smi_topo_from_text(const std::string& text, const std::string& file);

}  // namespace orrery::topologies
