// Translates a NodeDescription into a ClusterSpec.
#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>

#include "core/error.h"
#include "topologies/catalogue.h"
#include "topologies/importers/import_cluster.h"
#include "topologies/names.h"

namespace orrery::topologies {
namespace {

/// The usual node with GPUs of one compute capability, for what a file does not state.
struct Generation {
    std::int64_t compute_capability = 0;
    const char* preset;  // source of the LL limits
    const char* nvlink;
    std::int64_t nvlinks = 0, nvswitches = 0;  // per GPU; per node
    const char* pcie;
    const char* nic;
};
constexpr std::array kGenerations{
    Generation{70, "dgx1-v100", "nvlink2", 6, 1, "pcie-gen3-x16", "infiniband-edr"},
    Generation{80, "dgx-a100", "nvlink3", 12, 6, "pcie-gen4-x16", "infiniband-hdr"},
    Generation{90, "dgx-h100", "nvlink4", 18, 4, "pcie-gen5-x16", "infiniband-ndr"},
    Generation{100, "dgx-b200", "nvlink5", 18, 2, "pcie-gen5-x16", "infiniband-ndr"},
};

struct PciDevice {
    std::int64_t id = 0;
    const char* device;
};
constexpr std::array kPciDevices{
    // from the PCI ID repository
    PciDevice{0x1db1, "v100-sxm-16gb"}, PciDevice{0x1db5, "v100-sxm-32gb"}, PciDevice{0x20b0, "a100-sxm-40gb"},
    PciDevice{0x20b2, "a100-sxm-80gb"}, PciDevice{0x2330, "h100-sxm-80gb"}, PciDevice{0x2335, "h200-sxm-141gb"},
    PciDevice{0x2901, "b200-sxm"},      PciDevice{0x2941, "gb200"},
};

const Generation& known_generation(const DeviceProfile& device) {
    for (const Generation& one : kGenerations) {
        if (one.compute_capability == device.compute_capability) return one;
    }
    throw InputError("device " + device.name, "compute_capability", std::to_string(device.compute_capability),
                     "70, 80, 90 or 100");
}

/// `base` with another bandwidth.
LinkProfile with_bandwidth(LinkProfile base, double gb_per_s, const std::string& name, const std::string& source) {
    base.name = name;
    base.bandwidth_gb_per_s_per_direction = {gb_per_s, Provenance::datasheet, source};
    return base;
}

class NodeImport {
  public:
    NodeImport(const NodeDescription& node, const std::string& file, const ImportOptions& options, Notes& notes)
        : node_(node), file_(file), options_(options), notes_(notes) {}

    ClusterSpec run() {
        cluster_.name = printable(std::filesystem::path(file_).filename().string());
        cluster_.source = "imported from " + cluster_.name + " (" + node_.format + "); figures by the catalogue";
        cluster_.devices_per_node = static_cast<std::int64_t>(node_.gpus.size());
        for (const std::string& note : node_.notes.list()) notes_.add(note);
        choose_device();
        generation_ = &known_generation(cluster_.device);
        set_host_link();
        set_nvlink();
        set_nics();
        set_ports();
        set_ceilings();
        set_default_fabric();
        return std::move(cluster_);
    }

  private:
    void note(const std::string& text) { notes_.add(text); }

    void choose_device() {
        const std::int64_t id = node_.gpus.front().pci_device, capability = node_.gpus.front().compute_capability;
        for (const NodeGpu& gpu : node_.gpus) {
            if (gpu.pci_device != id || gpu.compute_capability != capability) {
                throw InputError(file_ + ": GPUs of several kinds; allowed: one kind per node");
            }
        }
        const std::string name = options_.device.empty() ? device_of(node_) : options_.device;
        if (name.empty()) {
            throw InputError(file_ + ": the file does not say which GPU this is" +
                             (capability > 0 ? " beyond compute capability " + std::to_string(capability) : "") +
                             "; give --device; allowed: " + join_names(device_names()));
        }
        cluster_.device = load_device(name);
        if (capability > 0 && cluster_.device.compute_capability != capability) {
            throw InputError(file_, "--device", name,
                             "a GPU of compute capability " + std::to_string(capability) + ", as the file says");
        }
    }

    void set_host_link() {
        const double rate = node_.gpu_pcie_gb_per_s;
        if (rate == 0) {
            cluster_.host_link = load_link(generation_->pcie);
            note("the GPUs' PCIe rate is not stated: taken as " + cluster_.host_link.name);
            return;
        }
        cluster_.host_link = pcie_link(rate);
    }

    /// The catalogue's link whose rate in NCCL's table is `rate`, else a link of that rate.
    [[nodiscard]] LinkProfile pcie_link(double rate) const {
        for (const auto& [known, name] :
             {std::pair{12.0, "pcie-gen3-x16"}, {24.0, "pcie-gen4-x16"}, {48.0, "pcie-gen5-x16"}}) {
            if (rate == known) return load_link(name);
        }
        LinkProfile link = with_bandwidth(load_link("pcie-gen5-x16"), rate, "pcie",
                                          "link_width and link_speed of " + cluster_.name + " by NCCL's table");
        link.efficiency = {1, Provenance::datasheet, "NCCL's table holds what is usable"};
        return link;
    }

    /// A GPU's NVLinks together, `links` of the generation's; 0: the usual number.
    [[nodiscard]] LinkProfile nvlink(std::int64_t links) const {
        LinkProfile link = load_link(generation_->nvlink);
        if (links == 0 || links == generation_->nvlinks) return link;
        const double each = link.bandwidth_gb_per_s_per_direction.value / static_cast<double>(generation_->nvlinks);
        const std::string name = link.name + " x" + std::to_string(links);
        return with_bandwidth(std::move(link), each * static_cast<double>(links), name,
                              std::to_string(links) + " links by " + cluster_.name);
    }

    void set_nvlink() {
        const bool assumed = options_.nvlink == NvlinkChoice::by_file && !node_.tells_nvlinks;
        const bool stated = options_.nvlink == NvlinkChoice::by_file && node_.tells_nvlinks;
        if (assumed)
            note(
                "the file does not state NVLinks: all GPUs are taken as joined by NVSwitches (--nvlink none: without)");
        if (stated && node_.nvswitches != 0) {
            cluster_.intra_node = nvlink(node_.nvlinks_per_gpu);
            cluster_.node_switches = node_.nvswitches > 0 ? node_.nvswitches : generation_->nvswitches;
            if (node_.nvswitches < 0) {
                note("the number of NVSwitches is not stated: taken as " + std::to_string(cluster_.node_switches));
            }
        } else if (stated && !node_.pairs.empty()) {
            cluster_.intra_node = nvlink(node_.nvlinks_per_gpu);
            for (const NodePair& pair : node_.pairs) {
                cluster_.inside.nvlink_pairs.push_back({pair.a, pair.b, pair.nvlinks});
            }
        } else if (options_.nvlink == NvlinkChoice::switched || assumed) {
            cluster_.intra_node = nvlink(0);
            cluster_.node_switches = generation_->nvswitches;
        } else {
            cluster_.intra_node = cluster_.host_link;
            note("no NVLinks: GPUs reach each other over PCIe");
        }
        if (node_.c2c_gb_per_s_per_direction > 0) cluster_.host_memory_link = load_link("nvlink-c2c");
    }

    /// Assigns `each` NICs to each of `rails` groups of GPUs, greedily by distance.
    [[nodiscard]] std::vector<std::vector<std::size_t>> choose_nics(std::int64_t rails, std::int64_t each) const {
        struct Candidate {
            std::int64_t distance = 0, rail = 0;
            std::size_t nic = 0;
            auto operator<=>(const Candidate&) const = default;  // NOLINT(modernize-use-nullptr): clang 14
        };
        const std::int64_t group = cluster_.devices_per_node / rails;
        std::vector<Candidate> candidates;
        for (std::int64_t rail = 0; rail < rails; ++rail) {
            for (std::size_t nic = 0; nic < node_.nics.size(); ++nic) {
                std::int64_t distance = 0;
                for (std::int64_t gpu = rail * group; gpu < (rail + 1) * group; ++gpu) {
                    distance += static_cast<std::int64_t>(node_.gpu_to_nic[static_cast<std::size_t>(gpu)][nic]);
                }
                candidates.push_back({distance, rail, nic});
            }
        }
        std::sort(candidates.begin(), candidates.end());
        std::vector<std::vector<std::size_t>> chosen(static_cast<std::size_t>(rails));
        std::vector<bool> taken(node_.nics.size());
        for (const Candidate& one : candidates) {
            std::vector<std::size_t>& rail = chosen[static_cast<std::size_t>(one.rail)];
            if (taken[one.nic] || static_cast<std::int64_t>(rail.size()) == each) continue;
            taken[one.nic] = true;
            rail.push_back(one.nic);
        }
        return chosen;
    }

    void set_nics() {
        const auto count = static_cast<std::int64_t>(node_.nics.size());
        if (count == 0) {
            note("no NICs: one node only");
            return;
        }
        std::int64_t rails = std::min(count, cluster_.devices_per_node);
        while (cluster_.devices_per_node % rails != 0) --rails;
        const std::int64_t each = count % rails == 0 && count > cluster_.devices_per_node ? count / rails : 1;
        rails_ = choose_nics(rails, each);
        std::vector<bool> used(node_.nics.size());
        for (const auto& rail : rails_) {
            for (const std::size_t nic : rail) used[nic] = true;
        }
        for (std::size_t nic = 0; nic < used.size(); ++nic) {
            if (!used[nic]) note("NIC " + node_.nics[nic].name + ": farther from every GPU than another, left out");
        }
        if (each > 1) note(std::to_string(each) + " NICs of each GPU are taken as one, with their bandwidths added");
        cluster_.nics_per_node = rails;
        cluster_.nic = nic_link(each);
    }

    [[nodiscard]] LinkProfile nic_link(std::int64_t each) {
        if (!options_.nic.empty()) return load_nic(options_.nic);
        double least = 0, most = 0;
        bool is_efa = false;
        for (const auto& rail : rails_) {
            double sum = 0;
            for (const std::size_t nic : rail) {
                sum += node_.nics[nic].gb_per_s_per_direction;
                is_efa = is_efa || node_.nics[nic].is_efa;
            }
            least = least == 0 ? sum : std::min(least, sum);
            most = std::max(most, sum);
        }
        if (least != most) note("NICs of several speeds: all taken as the slowest");
        LinkProfile link = load_link(is_efa ? "efa-100" : generation_->nic);
        if (least == 0) {
            note("the NICs' speed is not stated: taken as " + link.name + (each > 1 ? " each" : "") +
                 " (--nic: another)");
            least = link.bandwidth_gb_per_s_per_direction.value * static_cast<double>(each);
        }
        for (const char* name : {"infiniband-edr", "infiniband-hdr", "infiniband-ndr"}) {
            LinkProfile known = load_link(name);
            if (!is_efa && known.bandwidth_gb_per_s_per_direction.value == least) return known;
        }
        if (link.bandwidth_gb_per_s_per_direction.value == least) return link;
        return with_bandwidth(std::move(link), least, "nic", "NICs by " + cluster_.name);
    }

    /// Sets the sockets and the PCIe switch or socket that each GPU and NIC is attached to.
    void set_ports() {
        NodeInside& inside = cluster_.inside;
        inside.sockets = node_.sockets;
        if (node_.sockets > 1) inside.socket_link = socket_link();
        const bool switches = has_even_switches();
        std::vector<std::int64_t> order(node_.switch_sockets.size());
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
            return node_.switch_sockets[static_cast<std::size_t>(a)] <
                   node_.switch_sockets[static_cast<std::size_t>(b)];
        });
        std::vector<std::int64_t> number(order.size());
        for (std::size_t i = 0; i < order.size(); ++i)
            number[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
        const auto port = [&](std::int64_t pcie_switch, std::int64_t socket) {
            return switches ? number[static_cast<std::size_t>(pcie_switch)] : socket;
        };
        for (const NodeGpu& gpu : node_.gpus) inside.device_ports.push_back(port(gpu.pcie_switch, gpu.socket));
        for (const auto& rail : rails_) {
            const NodeNic& nic = node_.nics[rail.front()];
            inside.nic_ports.push_back(port(nic.pcie_switch, nic.socket));
        }
        if (!switches) return;
        inside.pcie_switches = static_cast<std::int64_t>(node_.switch_sockets.size());
        if (node_.switch_pcie_gb_per_s > 0) inside.pcie_uplink = pcie_link(node_.switch_pcie_gb_per_s);
    }

    /// Whether a ClusterSpec can hold the PCIe switches: it has equally many per socket, with all GPUs and NICs on
    /// them.
    bool has_even_switches() {
        if (node_.switch_sockets.empty()) return false;
        std::vector<std::int64_t> count(static_cast<std::size_t>(node_.sockets));
        for (const std::int64_t socket : node_.switch_sockets) ++count[static_cast<std::size_t>(socket)];
        bool even = std::all_of(count.begin(), count.end(), [&](std::int64_t n) { return n == count.front(); });
        for (const NodeGpu& gpu : node_.gpus) even = even && gpu.pcie_switch >= 0;
        for (const auto& rail : rails_) even = even && node_.nics[rail.front()].pcie_switch >= 0;
        if (!even) note("PCIe switches that are not spread evenly, or not below all GPUs and NICs, are left out");
        return even;
    }

    [[nodiscard]] LinkProfile socket_link() {
        double rate = node_.socket_gb_per_s_per_direction;
        if (rate == 0) {
            rate = 10;
            note("the CPUs are not stated: 10 GB/s between sockets, as NCCL assumes for Skylake");
        }
        LinkProfile link;
        link.name = "socket";
        link.kind = LinkMedium::socket;
        link.bandwidth_gb_per_s_per_direction = {rate, Provenance::datasheet,
                                                 "NCCL v2.28.9 src/graph/topo.h: between sockets of these CPUs"};
        link.latency_us = {0, Provenance::fallback, "assumption: contained in NCCL's per-step latency"};
        link.efficiency = {1, Provenance::datasheet, "NCCL's figure is what is usable"};
        return link;
    }

    void set_ceilings() {
        cluster_.low_latency = load_cluster(generation_->preset, 1).low_latency;
        if (node_.cpu_vendor.empty()) return;
        const bool amd = node_.cpu_vendor == "AuthenticAMD";
        const std::string source =
            std::string("NCCL v2.28.9 src/graph/tuning.cc: LL ceiling, ") + (amd ? "AMD" : "Intel") + " host, ";
        if (cluster_.device.compute_capability >= 100 || (!amd && node_.cpu_vendor != "GenuineIntel")) return;
        cluster_.low_latency.two_nodes_gb_per_s = {amd ? 22.5 : 39, Provenance::datasheet, source + "2 nodes"};
        cluster_.low_latency.more_nodes_gb_per_s = {amd ? 19 : 20.4, Provenance::datasheet,
                                                    source + "3 nodes and more"};
    }

    void set_default_fabric() {
        if (cluster_.nics_per_node == 0) return;
        cluster_.fabric = FabricKind::rail_optimised;
        cluster_.nodes_per_scalable_unit = 32;
    }

    const NodeDescription& node_;
    const std::string& file_;
    const ImportOptions& options_;
    Notes& notes_;
    ClusterSpec cluster_;
    const Generation* generation_ = nullptr;
    std::vector<std::vector<std::size_t>> rails_;  // the NICs of each rail
};

}  // namespace

std::string device_of(const NodeDescription& node) {
    for (const PciDevice& known : kPciDevices) {
        if (known.id == node.gpus.front().pci_device) return known.device;
    }
    return "";
}

ClusterSpec cluster_of_node(const NodeDescription& node, const std::string& file, const ImportOptions& options,
                            Notes& notes) {
    return NodeImport(node, file, options, notes).run();
}

}  // namespace orrery::topologies
