// The table that `nvidia-smi topo -m` prints: how every GPU of a node reaches every other and every NIC. It holds no
// speeds. Tabs or aligned columns, with or without the terminal's underlining, with NICs as NIC0 and a legend or, from
// old drivers, as mlx5_0.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topologies/importers/foreign_text.h"

namespace orrery::topologies {

/// From near to far. Values are ordered.
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
    std::vector<std::string> nics;  // by the legend's name where there is one: "mlx5_0"
    std::vector<std::vector<SmiConnection>> gpu_to_gpu;
    std::vector<std::vector<SmiConnection>> gpu_to_nic;
    std::vector<std::string> cpu_affinity;    // a GPU; "" where the table has none
    std::vector<std::int64_t> numa_affinity;  // a GPU; -1 where the table has none or several
    Notes notes;
};

[[nodiscard]] std::string name_of(SmiPath path);

/// Throws InputError naming file, line, row, column, value and what is allowed.
[[nodiscard]] SmiTopo smi_topo_from_text(const std::string& text, const std::string& file);

}  // namespace orrery::topologies
