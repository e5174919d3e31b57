#include "topologies/importers/node_description.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"

namespace orrery::topologies {
namespace {

constexpr std::int64_t kNvidia = 0x10de, kAmd = 0x1002, kAmazon = 0x1d0f;
constexpr std::int64_t kNvSwitchClass = 0x068000;
constexpr std::int64_t kVgaClass = 0x030000;  // a display adapter: the board's own, unless a GPU vendor made it
constexpr std::string_view kHiddenSwitch = "fffffff:ff:ff.0";

/// NCCL v2.28's bandwidth between two sockets of these CPUs (topo.cc and topo.h), GB/s per direction; 0: unknown CPU.
double socket_gb_per_s(const NcclCpu& cpu) {
    if (cpu.arch == "arm64") return 6;
    if (cpu.vendor == "AuthenticAMD") return 16;
    if (cpu.vendor != "GenuineIntel" || cpu.family != 6) return 0;
    constexpr std::int64_t kEmeraldRapids = 0xcf, kSapphireRapids = 0x8f, kSkylake = 0x55;
    if (cpu.model >= kEmeraldRapids) return 40;
    if (cpu.model >= kSapphireRapids) return 22;
    return cpu.model >= kSkylake ? 10 : 6;
}

/// The bridges from the function's parent up to the socket.
std::vector<std::int64_t> bridges_above(const NcclTopology& topology, std::int64_t pci) {
    std::vector<std::int64_t> above;
    for (std::int64_t up = topology.pcis[static_cast<std::size_t>(pci)].parent; up >= 0;
         up = topology.pcis[static_cast<std::size_t>(up)].parent) {
        above.push_back(up);
    }
    return above;
}

class NcclNode {
  public:
    NcclNode(const NcclTopology& topology, const std::string& file) : topology_(topology), file_(file) {}

    NodeDescription describe() {
        node_.format = "NCCL topology XML";
        node_.notes = topology_.notes;
        number_sockets();
        find_functions();
        add_gpus();
        add_nics();
        add_paths();
        add_nvlinks();
        add_uplinks();
        return std::move(node_);
    }

  private:
    [[nodiscard]] const NcclPci& pci(std::int64_t index) const {
        return topology_.pcis[static_cast<std::size_t>(index)];
    }

    /// Numbers the sockets from 0 in the order of their NUMA numbers.
    void number_sockets() {
        std::map<std::int64_t, std::int64_t> by_numa;  // numa -> cpu
        for (std::size_t i = 0; i < topology_.cpus.size(); ++i) {
            const NcclCpu& cpu = topology_.cpus[i];
            if (cpu.host_hash != topology_.cpus.front().host_hash) {
                throw InputError(file_ + ": <cpu> host_hash: got several hosts; allowed: the file of one node");
            }
            by_numa[cpu.numa] = static_cast<std::int64_t>(i);
            if (node_.cpu_vendor.empty()) node_.cpu_vendor = cpu.vendor;
            node_.socket_gb_per_s_per_direction = socket_gb_per_s(cpu);
            for (const NcclNet& net : cpu.nets) {
                node_.notes.add("<net> " + shown(net.name) + " has no PCIe function (sockets): left out");
            }
        }
        socket_.resize(topology_.cpus.size());
        std::int64_t next = 0;
        for (const auto& [numa, cpu] : by_numa) socket_[static_cast<std::size_t>(cpu)] = next++;
        node_.sockets = next;
    }

    void find_functions() {
        for (std::size_t i = 0; i < topology_.pcis.size(); ++i) {
            const NcclPci& one = topology_.pcis[i];
            const bool maker_of_gpus = one.vendor == 0 || one.vendor == kNvidia || one.vendor == kAmd;
            if (one.is_gpu() && !one.gpu && one.device_class == kVgaClass && !maker_of_gpus) {
                node_.notes.add("<pci> " + one.busid + ": a display adapter, left out");
            } else if (one.is_gpu()) {
                gpus_.push_back(static_cast<std::int64_t>(i));
            } else if (one.is_nic()) {
                nics_.push_back(static_cast<std::int64_t>(i));
            }
        }
        if (gpus_.empty()) throw InputError(file_ + ": no GPU: no <gpu>, and no <pci> of class 0x03");
        const bool numbered =
            std::all_of(gpus_.begin(), gpus_.end(), [&](std::int64_t g) { return pci(g).gpu.has_value(); });
        std::sort(gpus_.begin(), gpus_.end(), [&](std::int64_t a, std::int64_t b) {
            return numbered ? pci(a).gpu->dev < pci(b).gpu->dev : pci(a).busid < pci(b).busid;
        });
        const auto first_dev = [&](std::int64_t n) { return pci(n).nets.empty() ? 1 << 20 : pci(n).nets.front().dev; };
        std::sort(nics_.begin(), nics_.end(), [&](std::int64_t a, std::int64_t b) {
            return std::pair(first_dev(a), pci(a).busid) < std::pair(first_dev(b), pci(b).busid);
        });
        for (const std::int64_t gpu : gpus_) number_switch(gpu);
        for (const std::int64_t nic : nics_) number_switch(nic);
    }

    /// The bridge next to the socket represents all bridges nested below it.
    void number_switch(std::int64_t function) {
        const std::vector<std::int64_t> above = bridges_above(topology_, function);
        if (above.empty()) return;
        if (above.size() > 1) node_.notes.add("nested PCIe switches are taken as one, without the links among them");
        if (switch_.emplace(above.back(), 0).second) order_.push_back(above.back());
        std::stable_sort(order_.begin(), order_.end(), [&](std::int64_t a, std::int64_t b) {
            return socket_[static_cast<std::size_t>(pci(a).cpu)] < socket_[static_cast<std::size_t>(pci(b).cpu)];
        });
    }

    [[nodiscard]] std::int64_t switch_of(std::int64_t function) const {
        const std::vector<std::int64_t> above = bridges_above(topology_, function);
        if (above.empty()) return -1;
        return std::find(order_.begin(), order_.end(), above.back()) - order_.begin();
    }

    void add_gpus() {
        for (const std::int64_t top : order_) {
            node_.switch_sockets.push_back(socket_[static_cast<std::size_t>(pci(top).cpu)]);
        }
        for (const std::int64_t g : gpus_) {
            const NcclPci& one = pci(g);
            NodeGpu gpu;
            gpu.name = one.busid;
            gpu.pci_device = one.vendor == 0 || one.vendor == kNvidia ? one.device : 0;
            gpu.compute_capability = one.gpu ? one.gpu->compute_capability : 0;
            gpu.socket = socket_[static_cast<std::size_t>(one.cpu)];
            gpu.pcie_switch = switch_of(g);
            node_.gpus.push_back(gpu);
            if (one.gpu) node_.c2c_gb_per_s_per_direction = one.gpu->c2c_gb_per_s_per_direction;
            if (!one.link_known) continue;
            node_.gpu_pcie_gb_per_s = node_.gpu_pcie_gb_per_s == 0
                                          ? one.gb_per_s_per_direction
                                          : std::min(node_.gpu_pcie_gb_per_s, one.gb_per_s_per_direction);
        }
    }

    void add_nics() {
        for (const std::int64_t n : nics_) {
            const NcclPci& one = pci(n);
            NodeNic nic;
            for (const NcclNet& net : one.nets) {
                nic.name += (nic.name.empty() ? "" : "+") + printable(net.name);
                nic.gb_per_s_per_direction += net.gb_per_s_per_direction;
            }
            if (nic.name.empty()) nic.name = one.busid;
            if (one.nets.size() > 1)
                node_.notes.add("the ports of one NIC are taken as one, with their bandwidths added");
            nic.socket = socket_[static_cast<std::size_t>(one.cpu)];
            nic.pcie_switch = switch_of(n);
            nic.is_efa = one.vendor == kAmazon;
            node_.nics.push_back(std::move(nic));
        }
    }

    /// nvidia-smi's name for the path, from the bridges between the two.
    [[nodiscard]] SmiPath path(std::int64_t a, std::int64_t b) const {
        if (pci(a).cpu != pci(b).cpu) return SmiPath::sys;
        const std::vector<std::int64_t> up_a = bridges_above(topology_, a), up_b = bridges_above(topology_, b);
        for (std::size_t i = 0; i < up_a.size(); ++i) {
            const auto meet = std::find(up_b.begin(), up_b.end(), up_a[i]);
            if (meet == up_b.end()) continue;
            return i + static_cast<std::size_t>(meet - up_b.begin()) == 0 ? SmiPath::pix : SmiPath::pxb;
        }
        return SmiPath::phb;
    }

    void add_paths() {
        for (const std::int64_t gpu : gpus_) {
            std::vector<SmiPath>& row = node_.gpu_to_nic.emplace_back();
            for (const std::int64_t nic : nics_) row.push_back(path(gpu, nic));
        }
    }

    void add_nvlinks() {
        std::map<std::string, std::int64_t> gpu_at;
        for (std::size_t i = 0; i < gpus_.size(); ++i) gpu_at[pci(gpus_[i]).busid] = static_cast<std::int64_t>(i);
        std::set<std::string> switches;
        std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> pairs;
        node_.tells_nvlinks =
            std::all_of(gpus_.begin(), gpus_.end(), [&](std::int64_t g) { return pci(g).gpu.has_value(); });
        for (std::size_t i = 0; i < gpus_.size(); ++i) {
            if (!pci(gpus_[i]).gpu) continue;
            std::int64_t links = 0;
            for (const NcclNvlink& link : pci(gpus_[i]).gpu->nvlinks) {
                if (link.target_class == kNvSwitchClass) {
                    switches.insert(link.target);
                    links += link.count;
                } else if (link.target_class >> 16 == 0x03) {
                    const std::int64_t other = gpu_at.at(link.target);
                    if (other == static_cast<std::int64_t>(i)) {
                        node_.notes.add("NVLinks from a GPU to itself are left out");
                        continue;
                    }
                    links += link.count;
                    if (other > static_cast<std::int64_t>(i))
                        pairs[{static_cast<std::int64_t>(i), other}] += link.count;
                } else {
                    node_.notes.add("NVLinks to class " + std::to_string(link.target_class) + " (a CPU) are left out");
                }
            }
            node_.nvlinks_per_gpu = std::max(node_.nvlinks_per_gpu, links);
        }
        for (const auto& [ends, count] : pairs) {
            if (count > 0) node_.pairs.push_back({ends.first, ends.second, count});
        }
        node_.nvswitches =
            switches.count(std::string(kHiddenSwitch)) > 0 ? -1 : static_cast<std::int64_t>(switches.size());
    }

    /// Idle PCIe links report a low rate, so an uplink is taken as at least as fast as the GPUs' links.
    void add_uplinks() {
        for (const std::int64_t top : order_) {
            double rate = pci(top).link_known ? pci(top).gb_per_s_per_direction : 0;
            if (rate > 0 && rate < node_.gpu_pcie_gb_per_s) {
                node_.notes.add(
                    "a PCIe switch's uplink states a lower rate than the GPUs' links, as idle links do: taken as "
                    "the GPUs' rate");
                rate = node_.gpu_pcie_gb_per_s;
            }
            if (rate > 0) {
                node_.switch_pcie_gb_per_s =
                    node_.switch_pcie_gb_per_s == 0 ? rate : std::min(node_.switch_pcie_gb_per_s, rate);
            }
        }
    }

    const NcclTopology& topology_;
    const std::string& file_;
    NodeDescription node_;
    std::vector<std::int64_t> socket_;       // by cpu
    std::vector<std::int64_t> gpus_, nics_;  // indices into pcis
    std::map<std::int64_t, std::int64_t> switch_;
    std::vector<std::int64_t> order_;  // PCIe switches as indices into pcis, by socket
};

/// The PCIe switch of each GPU and NIC: devices with PIX or PXB between them share one.
std::vector<std::int64_t> smi_switches(const SmiTopo& topo, std::vector<std::int64_t>& nic_switch) {
    std::vector<std::int64_t> gpu_switch(topo.gpus.size(), -1);
    nic_switch.assign(topo.nics.size(), -1);
    std::int64_t next = 0;
    const auto near = [](SmiPath path) { return path == SmiPath::pix || path == SmiPath::pxb; };
    for (std::size_t g = 0; g < topo.gpus.size(); ++g) {
        std::int64_t found = -1;
        for (std::size_t n = 0; n < topo.nics.size(); ++n) {
            if (near(topo.gpu_to_nic[g][n].path) && nic_switch[n] >= 0) found = nic_switch[n];
        }
        for (std::size_t other = 0; other < g; ++other) {
            if (near(topo.gpu_to_gpu[g][other].path) && gpu_switch[other] >= 0) found = gpu_switch[other];
        }
        const bool has_near = std::any_of(topo.gpu_to_nic[g].begin(), topo.gpu_to_nic[g].end(),
                                          [&](const SmiConnection& one) { return near(one.path); }) ||
                              std::any_of(topo.gpu_to_gpu[g].begin(), topo.gpu_to_gpu[g].end(),
                                          [&](const SmiConnection& one) { return near(one.path); });
        if (found < 0 && !has_near) continue;
        gpu_switch[g] = found >= 0 ? found : next++;
        for (std::size_t n = 0; n < topo.nics.size(); ++n) {
            if (near(topo.gpu_to_nic[g][n].path) && nic_switch[n] < 0) nic_switch[n] = gpu_switch[g];
        }
    }
    return gpu_switch;
}

/// The socket of each GPU, by NUMA affinity if the table has it, else by CPU affinity.
std::vector<std::int64_t> smi_sockets(const SmiTopo& topo, std::int64_t& sockets) {
    std::map<std::string, std::int64_t> known;
    std::vector<std::int64_t> socket;
    for (std::size_t g = 0; g < topo.gpus.size(); ++g) {
        const std::string key =
            topo.numa_affinity[g] >= 0 ? std::to_string(topo.numa_affinity[g]) : topo.cpu_affinity[g];
        socket.push_back(known.emplace(key, static_cast<std::int64_t>(known.size())).first->second);
    }
    sockets = static_cast<std::int64_t>(known.size());
    return socket;
}

void add_smi_nvlinks(const SmiTopo& topo, NodeDescription& node) {
    std::int64_t most_links = 0, least = 0, most = 0;
    for (std::size_t a = 0; a < topo.gpus.size(); ++a) {
        std::int64_t links = 0;
        for (std::size_t b = 0; b < topo.gpus.size(); ++b) {
            const std::int64_t count = topo.gpu_to_gpu[a][b].nvlinks;
            links += count;
            if (a == b) continue;
            most = std::max(most, count);
            least = a == 0 && b == 1 ? count : std::min(least, count);
            if (b > a && count > 0) {
                node.pairs.push_back({static_cast<std::int64_t>(a), static_cast<std::int64_t>(b), count});
            }
        }
        most_links = std::max(most_links, links);
    }
    // With NVSwitches every pair may use all links of a GPU: all pairs then state the same number, and their sum
    // exceeds the links of a GPU.
    constexpr std::int64_t kMostLinksOfAGpu = 18;
    if (least == most && most_links > kMostLinksOfAGpu && topo.gpus.size() > 2) {
        node.nvswitches = -1;
        node.nvlinks_per_gpu = most;
        node.pairs.clear();
    } else {
        node.nvlinks_per_gpu = most_links;
    }
}

}  // namespace

NodeDescription describe_node(const NcclTopology& topology, const std::string& file) {
    return NcclNode(topology, file).describe();
}

NodeDescription describe_node(const SmiTopo& topo, const std::string& file) {
    if (topo.gpus.empty()) throw InputError(file + ": no GPU");
    NodeDescription node;
    node.format = "nvidia-smi topo -m";
    node.notes = topo.notes;
    std::vector<std::int64_t> nic_switch;
    const std::vector<std::int64_t> gpu_switch = smi_switches(topo, nic_switch);
    const std::vector<std::int64_t> gpu_socket = smi_sockets(topo, node.sockets);
    std::int64_t switches = 0;
    for (const std::int64_t one : gpu_switch) switches = std::max(switches, one + 1);
    node.switch_sockets.assign(static_cast<std::size_t>(switches), 0);
    for (std::size_t g = 0; g < topo.gpus.size(); ++g) {
        NodeGpu gpu;
        gpu.name = topo.gpus[g];
        gpu.socket = gpu_socket[g];
        gpu.pcie_switch = gpu_switch[g];
        if (gpu_switch[g] >= 0) node.switch_sockets[static_cast<std::size_t>(gpu_switch[g])] = gpu_socket[g];
        node.gpus.push_back(std::move(gpu));
        std::vector<SmiPath>& row = node.gpu_to_nic.emplace_back();
        for (const SmiConnection& one : topo.gpu_to_nic[g]) row.push_back(one.path);
    }
    for (std::size_t n = 0; n < topo.nics.size(); ++n) {
        NodeNic nic;
        nic.name = printable(topo.nics[n]);
        nic.pcie_switch = nic_switch[n];
        for (std::size_t g = topo.gpus.size(); g-- > 0;) {
            if (node.gpu_to_nic[g][n] < SmiPath::sys) nic.socket = gpu_socket[g];
        }
        node.nics.push_back(std::move(nic));
    }
    add_smi_nvlinks(topo, node);
    return node;
}

}  // namespace orrery::topologies
