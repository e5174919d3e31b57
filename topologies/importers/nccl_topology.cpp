#include "topologies/importers/nccl_topology.h"

#include <set>

#include "core/error.h"
#include "topologies/importers/xml_element.h"

namespace orrery::topologies {
namespace {

constexpr IntegerRange kSmall{0, 1 << 20};
constexpr IntegerRange kFlag{-1, 1 << 20};
constexpr IntegerRange kSixteenBits{0, 0xffff};
constexpr double kMostMicroseconds = 1e9;
constexpr double kGbPerSPerMbPerS = 1.0 / 8000;
constexpr std::int64_t kDefaultMbPerS = 10000;  // NCCL's, for a NIC that states none or -1

/// Data rate of a lane in units of 100 Mb/s, by transfer rate, without encoding overhead (topo.cc); 0: unknown rate.
double lane_rate(const std::string& link_speed) {
    const std::size_t end = link_speed.find(" GT/s");
    const std::optional<double> giga =
        end == std::string::npos ? std::nullopt : number_of(std::string_view(link_speed).substr(0, end));
    for (const auto& [rate, lane] :
         {std::pair{2.5, 15.0}, {5.0, 30.0}, {8.0, 60.0}, {16.0, 120.0}, {32.0, 240.0}, {64.0, 480.0}}) {
        if (giga == rate) return lane;
    }
    return 0;
}

void read_pci_link(const XmlElement& element, NcclPci& pci, Notes& notes) {
    std::int64_t width = element.integer_or("link_width", {0, 64}, 0);
    const std::string link_speed = element.text_or("link_speed", "");
    double lane = lane_rate(link_speed);
    pci.link_known = width > 0 && lane > 0;
    if (width == 0) {
        notes.add("<pci> link_width: not stated, taken as 16 as NCCL does");
        width = 16;
    }
    if (lane == 0) {
        notes.add("<pci> link_speed " + shown(link_speed) + ": not known, taken as 8 GT/s as NCCL does");
        lane = 60;
    }
    pci.gb_per_s_per_direction = static_cast<double>(width) * lane / 80;
}

std::string bus_id(const XmlElement& element, const char* attribute) {
    std::string value = element.text(attribute);
    if (value.empty() || value.find_first_not_of("0123456789abcdefABCDEF:.") != std::string::npos) {
        element.fail(attribute, "a PCI bus id such as 0000:1b:00.0");
    }
    return value;
}

NcclNvlink read_nvlink(const XmlElement& element, Notes& notes) {
    element.note_unread({"target", "count", "tclass"}, notes);
    return {bus_id(element, "target"), element.integer("count", {0, 1 << 10}),
            element.integer("tclass", {0, 0xffffff})};
}

NcclGpu read_gpu(const XmlElement& element, Notes& notes) {
    element.note_unread({"dev", "sm", "rank", "gdr"}, notes);
    NcclGpu gpu;
    gpu.dev = element.integer("dev", kSmall);
    gpu.compute_capability = element.integer("sm", {1, 1000});
    gpu.rank = element.integer_or("rank", {-1, kSmall.high}, -1);
    gpu.gdr = element.integer_or("gdr", kFlag, 0) > 0;
    for (const XmlElement& child : element.children()) {
        if (child.name() == "nvlink") {
            gpu.nvlinks.push_back(read_nvlink(child, notes));
        } else if (child.name() == "c2c") {
            child.note_unread({"bw", "count"}, notes);
            // MB/s per link, times the number of links.
            const auto mb_per_s = static_cast<double>(child.integer("bw", {0, 1 << 30}));
            gpu.c2c_gb_per_s_per_direction += mb_per_s * static_cast<double>(child.integer("count", kSmall)) / 1000;
        } else {
            notes.add("<gpu> <" + child.name() + ">: not read");
        }
    }
    return gpu;
}

std::vector<NcclNet> read_nic(const XmlElement& element, Notes& notes) {
    std::vector<NcclNet> nets;
    for (const XmlElement& child : element.children()) {
        if (child.name() != "net") {
            notes.add("<nic> <" + child.name() + ">: not read");
            continue;
        }
        child.note_unread({"name", "dev", "speed", "port", "latency", "guid", "maxconn", "gdr", "coll", "keep", "net"},
                          notes);
        if (child.integer_or("net", kFlag, 1) == 0) {
            notes.add("<net> with net=\"0\": part of a merged NIC, left out as NCCL does");
            continue;
        }
        NcclNet net;
        net.dev = child.integer_or("dev", kFlag, -1);
        if (net.dev < 0) {
            notes.add("<net> without dev: left out as NCCL does");
            continue;
        }
        net.name = child.text_or("name", "");
        std::int64_t mb_per_s = child.integer_or("speed", {-1, std::int64_t{1} << 40}, 0);
        if (mb_per_s <= 0) {
            notes.add("<net> speed: not stated, taken as 10000 Mb/s as NCCL does");
            mb_per_s = kDefaultMbPerS;
        }
        net.gb_per_s_per_direction = static_cast<double>(mb_per_s) * kGbPerSPerMbPerS;
        net.latency_us = child.number_or("latency", 0, kMostMicroseconds, 0);
        net.port = child.integer_or("port", kFlag, 0);
        net.gdr = child.integer_or("gdr", kFlag, 0) > 0;
        net.collective_offload = child.integer_or("coll", kFlag, 0) > 0;
        nets.push_back(std::move(net));
    }
    return nets;
}

class NcclTopologyReader {
  public:
    explicit NcclTopologyReader(const std::string& file) : file_(file) {}

    NcclTopology read(const XmlElement& root) {
        if (root.name() != "system") {
            throw InputError(file_ + ": the root element is <" + root.name() + ">; allowed: <system>");
        }
        // RCCL writes 2; its <xgmi> links are noted as not read.
        const std::int64_t version = root.integer_or("version", {0, kSmall.high}, 1);
        if (version != 1 && version != 2) root.fail("version", "1, or RCCL's 2");
        for (const XmlElement& child : root.children()) {
            if (child.name() == "cpu") {
                read_cpu(child);
            } else {
                topology_.notes.add("<system> <" + child.name() + ">: not read");
            }
        }
        if (topology_.cpus.empty()) throw InputError(root.place() + ": no <cpu>; a node has at least one");
        check_targets();
        return std::move(topology_);
    }

  private:
    void read_cpu(const XmlElement& element) {
        element.note_unread({"numaid", "affinity", "arch", "vendor", "familyid", "modelid", "host_hash"},
                            topology_.notes);
        NcclCpu cpu;
        cpu.numa = element.integer("numaid", {-1, kSmall.high});
        cpu.host_hash = element.text_or("host_hash", "");
        cpu.arch = element.text_or("arch", "");
        cpu.vendor = element.text_or("vendor", "");
        cpu.family = element.integer_or("familyid", kFlag, 0);
        cpu.model = element.integer_or("modelid", kFlag, 0);
        if (!hosts_and_sockets_.insert({cpu.host_hash, cpu.numa}).second) {
            element.fail("numaid", "a number of its own for each <cpu> of a host");
        }
        topology_.cpus.push_back(std::move(cpu));
        for (const XmlElement& child : element.children()) {
            if (child.name() == "pci") {
                read_pci(child, -1);
            } else if (child.name() == "nic") {
                const std::vector<NcclNet> nets = read_nic(child, topology_.notes);
                auto& all = topology_.cpus.back().nets;
                all.insert(all.end(), nets.begin(), nets.end());
            } else {
                topology_.notes.add("<cpu> <" + child.name() + ">: not read");
            }
        }
    }

    void read_pci(const XmlElement& element, std::int64_t parent) {
        element.note_unread(
            {"busid", "class", "vendor", "device", "subsystem_vendor", "subsystem_device", "link_speed", "link_width"},
            topology_.notes);
        NcclPci pci;
        pci.busid = bus_id(element, "busid");
        pci.device_class = element.integer_or("class", {0, 0xffffff}, class_by_children(element));
        pci.vendor = element.integer_or("vendor", kSixteenBits, 0);
        pci.device = element.integer_or("device", kSixteenBits, 0);
        pci.cpu = static_cast<std::int64_t>(topology_.cpus.size()) - 1;
        pci.parent = parent;
        read_pci_link(element, pci, topology_.notes);
        if (!bus_ids_.insert({topology_.cpus.back().host_hash, pci.busid}).second) {
            element.fail("busid", "an id of its own for each <pci>");
        }
        const auto self = static_cast<std::int64_t>(topology_.pcis.size());
        topology_.pcis.push_back(std::move(pci));
        for (const XmlElement& child : element.children()) read_below(child, self);
    }

    /// The PCI class if the file leaves it out: that of the child element, else a bridge.
    static std::int64_t class_by_children(const XmlElement& element) {
        constexpr std::int64_t kGpu = 0x030200, kNic = 0x020000, kBridge = 0x060400;
        for (const XmlElement& child : element.children()) {
            if (child.name() == "gpu") return kGpu;
            if (child.name() == "nic") return kNic;
        }
        return kBridge;
    }

    void read_below(const XmlElement& child, std::int64_t self) {
        const auto at = static_cast<std::size_t>(self);
        if (child.name() == "pci") return read_pci(child, self);
        if (child.name() == "gpu") {
            if (topology_.pcis[at].gpu) throw InputError(child.place() + ": a second <gpu>; allowed: one per <pci>");
            topology_.pcis[at].gpu = read_gpu(child, topology_.notes);
            if (!devs_.insert({topology_.cpus.back().host_hash, topology_.pcis[at].gpu->dev}).second) {
                child.fail("dev", "a number of its own for each <gpu> of a host");
            }
        } else if (child.name() == "nic") {
            const std::vector<NcclNet> nets = read_nic(child, topology_.notes);
            topology_.pcis[at].nets.insert(topology_.pcis[at].nets.end(), nets.begin(), nets.end());
        } else {
            topology_.notes.add("<pci> <" + child.name() + ">: not read");
        }
    }

    /// An NVLink to a GPU must lead to a GPU in the file, else its bandwidth would be lost silently.
    void check_targets() const {
        std::set<std::string> gpus;
        for (const NcclPci& pci : topology_.pcis) {
            if (pci.is_gpu()) gpus.insert(pci.busid);
        }
        for (const NcclPci& pci : topology_.pcis) {
            if (!pci.gpu) continue;
            for (const NcclNvlink& link : pci.gpu->nvlinks) {
                if (link.target_class >> 16 == 0x03 && gpus.count(link.target) == 0) {
                    throw InputError(file_ + ": <nvlink> of " + pci.busid, "target", shown(link.target),
                                     "the busid of a GPU of this file");
                }
            }
        }
    }

    const std::string& file_;
    NcclTopology topology_;
    std::set<std::pair<std::string, std::int64_t>> hosts_and_sockets_, devs_;
    std::set<std::pair<std::string, std::string>> bus_ids_;
};

}  // namespace

NcclTopology nccl_topology_from_text(const std::string& text, const std::string& file) {
    return NcclTopologyReader(file).read(XmlElement::parse(text, file));
}

}  // namespace orrery::topologies
