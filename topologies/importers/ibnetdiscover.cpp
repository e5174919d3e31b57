#include "topologies/importers/ibnetdiscover.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "core/error.h"

namespace orrery::topologies {
namespace {

constexpr std::int64_t kMostPorts = 254;  // a port number is one byte, and 0 and 255 have no cables

/// A cable as listed at one end.
struct Report {
    std::int64_t device = 0, port = 0;
    std::string peer;
    std::int64_t peer_port = 0;
    std::int64_t lanes = 0;
    std::string rate;
    std::size_t line = 0;
};

class IbnetdiscoverReader {
  public:
    IbnetdiscoverReader(const std::string& text, const std::string& file) : file_(file) {
        const std::vector<std::string_view> lines = lines_of(text, file);
        for (line_ = 0; line_ < lines.size(); ++line_) read_line(lines[line_]);
    }

    IbFabric finish() {
        if (fabric_.devices.empty()) {
            throw InputError(file_ + ": no Switch and no Ca; allowed: the output of ibnetdiscover");
        }
        for (const Report& report : reports_) add_cable(report);
        if (one_sided_ > 0) {
            fabric_.notes.add(std::to_string(one_sided_) + " cables are listed at one end only");
        }
        return std::move(fabric_);
    }

  private:
    [[noreturn]] void fail(std::string_view got, const std::string& allowed) const {
        throw InputError(line_place(file_, line_) + ": got " + shown(got) + "; allowed: " + allowed);
    }

    void read_line(std::string_view line) {
        line = trimmed(line);
        if (line.empty()) {
            inside_ = false;
            return;
        }
        if (line.front() == '#') return;
        if (line.front() == '[') {
            if (inside_) {
                read_port(line);
            } else {
                fail(line, "ports below a Switch or a Ca");
            }
            return;
        }
        const std::vector<std::string_view> words = words_of(line);
        // Group headings (ibnetdiscover -g); devices and cables follow as usual.
        if (words.front() == "Chassis" || words.front() == "Non-Chassis") return;
        if (words.front() == "Switch" || words.front() == "Ca") return read_device(line, words);
        if (words.front() == "Rt")
            fail(words.front(), "Switch or Ca; routers, which join several fabrics, are not supported");
        if (line.find('=') == std::string_view::npos) {
            fail(line, "Switch, Ca, [port] or key=value, as ibnetdiscover prints");
        }
        // vendid=, devid=, sysimgguid=, switchguid= and caguid= describe the next block and are not needed.
    }

    /// The text between the next two quotes; `at` moves past the second.
    std::string_view quoted(std::string_view line, std::size_t& at) const {
        const std::size_t open = line.find('"', at);
        const std::size_t close = open == std::string_view::npos ? open : line.find('"', open + 1);
        if (close == std::string_view::npos) fail(line, "a text in quotes");
        at = close + 1;
        return line.substr(open + 1, close - open - 1);
    }

    void read_device(std::string_view line, const std::vector<std::string_view>& words) {
        IbDevice device;
        device.is_switch = words.front() == "Switch";
        const std::optional<std::int64_t> ports = words.size() > 1 ? integer_of(words[1]) : std::nullopt;
        if (!ports || *ports < 1 || *ports > kMostPorts) fail(line, "a number of ports from 1 to 254");
        device.ports = *ports;
        std::size_t at = 0;
        device.guid = quoted(line, at);
        check_guid(device.guid, line);
        if ((device.guid.front() == 'S') != device.is_switch) fail(device.guid, "S-... of a Switch, H-... of a Ca");
        device.name = quoted(line, at);
        if (!index_.emplace(device.guid, static_cast<std::int64_t>(fabric_.devices.size())).second) {
            fail(device.guid, "each device once");
        }
        if (static_cast<std::int64_t>(fabric_.devices.size()) >= kMostForeignItems) fail(line, "fewer devices");
        fabric_.devices.push_back(std::move(device));
        ports_seen_.clear();
        inside_ = true;
    }

    void check_guid(std::string_view guid, std::string_view line) const {
        const bool plain = guid.size() > 2 && guid.size() <= 18 && (guid.starts_with("S-") || guid.starts_with("H-")) &&
                           guid.substr(2).find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
        if (!plain) fail(line, "an id S-... or H-... of up to 16 hexadecimal digits");
    }

    std::int64_t bracketed(std::string_view line, std::size_t& at) const {
        const std::size_t close = at < line.size() && line[at] == '[' ? line.find(']', at) : std::string_view::npos;
        const std::optional<std::int64_t> port =
            close == std::string_view::npos ? std::nullopt : integer_of(line.substr(at + 1, close - at - 1));
        if (!port || *port < 1 || *port > kMostPorts) fail(line, "[port] from 1 to 254");
        at = close + 1;
        return *port;
    }

    /// [7](guid)  "S-guid"[12](guid)  # "name" lid 7 4xNDR
    void read_port(std::string_view line) {
        Report report;
        std::size_t at = 0;
        report.device = static_cast<std::int64_t>(fabric_.devices.size()) - 1;
        report.port = bracketed(line, at);
        if (report.port > fabric_.devices.back().ports) fail(line, "a port that the device has");
        if (!ports_seen_.insert(report.port).second) fail(line, "each port once");
        report.peer = quoted(line, at);
        check_guid(report.peer, line);
        report.peer_port = bracketed(line, at);
        const std::vector<std::string_view> words = words_of(line.substr(at));
        const std::string_view speed = words.empty() ? std::string_view() : words.back();
        const std::size_t x = speed.find('x');
        const std::optional<std::int64_t> lanes =
            x == std::string_view::npos ? std::nullopt : integer_of(speed.substr(0, x));
        if (!lanes || (*lanes != 1 && *lanes != 2 && *lanes != 4 && *lanes != 8 && *lanes != 12) ||
            ib_lane_gbit_per_s(speed.substr(x + 1)) <= 0) {
            fail(speed.empty() ? line : speed,
                 "1x, 2x, 4x, 8x or 12x of SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR or XDR");
        }
        report.lanes = *lanes;
        report.rate = std::string(speed.substr(x + 1));
        report.line = line_;
        if (static_cast<std::int64_t>(reports_.size()) >= kMostForeignItems) fail(line, "fewer ports");
        by_end_.emplace(std::pair{report.device, report.port}, reports_.size());
        reports_.push_back(std::move(report));
    }

    void add_cable(const Report& report) {
        line_ = report.line;
        const auto peer = index_.find(report.peer);
        if (peer == index_.end()) {
            fail(report.peer, "a device that the file describes");
        }
        if (report.peer_port > fabric_.devices[static_cast<std::size_t>(peer->second)].ports) {
            fail(report.peer + "[" + std::to_string(report.peer_port) + "]", "a port that the device has");
        }
        if (peer->second == report.device && report.peer_port == report.port)
            fail(report.peer, "a port other than the cable's own");
        const auto other = by_end_.find({peer->second, report.peer_port});
        if (other != by_end_.end()) {
            const Report& back = reports_[other->second];
            if (back.peer != fabric_.devices[static_cast<std::size_t>(report.device)].guid ||
                back.peer_port != report.port || back.lanes != report.lanes || back.rate != report.rate) {
                fail(report.peer + "[" + std::to_string(report.peer_port) + "]",
                     "what line " + std::to_string(back.line + 1) + " says of the same cable");
            }
            if (std::pair{peer->second, report.peer_port} < std::pair{report.device, report.port}) return;
        } else {
            ++one_sided_;
        }
        const double gb_per_s = static_cast<double>(report.lanes) * ib_lane_gbit_per_s(report.rate) / 8;
        fabric_.cables.push_back(
            {report.device, report.port, peer->second, report.peer_port, report.lanes, report.rate, gb_per_s});
    }

    const std::string& file_;
    std::size_t line_ = 0;
    bool inside_ = false;
    IbFabric fabric_;
    std::map<std::string, std::int64_t> index_;
    std::set<std::int64_t> ports_seen_;
    std::vector<Report> reports_;
    std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> by_end_;
    std::int64_t one_sided_ = 0;
};

/// Tier of each switch: its distance from the hosts, 1 if a host is connected to it; 0 if it reaches no host.
std::vector<std::int64_t> switch_tiers(const IbFabric& ib, const std::vector<std::vector<std::int64_t>>& neighbours) {
    std::vector<std::int64_t> tier(ib.devices.size(), 0);
    std::vector<std::int64_t> queue;
    for (std::size_t i = 0; i < ib.devices.size(); ++i) {
        if (!ib.devices[i].is_switch) continue;
        const bool has_host = std::any_of(neighbours[i].begin(), neighbours[i].end(), [&](std::int64_t other) {
            const IbDevice& device = ib.devices[static_cast<std::size_t>(other)];
            return !device.is_switch && !is_aggregation_node(device);
        });
        if (!has_host) continue;
        tier[i] = 1;
        queue.push_back(static_cast<std::int64_t>(i));
    }
    for (std::size_t at = 0; at < queue.size(); ++at) {
        const auto here = static_cast<std::size_t>(queue[at]);
        for (const std::int64_t other : neighbours[here]) {
            const auto there = static_cast<std::size_t>(other);
            if (!ib.devices[there].is_switch || tier[there] != 0) continue;
            tier[there] = tier[here] + 1;
            queue.push_back(other);
        }
    }
    return tier;
}

}  // namespace

double ib_lane_gbit_per_s(std::string_view rate) {
    static const std::map<std::string_view, double> rates{
        {"SDR", 2},  {"DDR", 4},  {"QDR", 8},   {"FDR10", 10}, {"FDR", 14.0625 * 64 / 66},
        {"EDR", 25}, {"HDR", 50}, {"NDR", 100}, {"XDR", 200}};
    const auto found = rates.find(rate);
    return found == rates.end() ? 0 : found->second;
}

bool is_aggregation_node(const IbDevice& device) {
    return !device.is_switch && device.name.find("Aggregation Node") != std::string::npos;
}

std::string ib_host(const IbDevice& device) {
    const std::size_t space = device.name.rfind(' ');
    if (device.is_switch || space == std::string::npos || is_aggregation_node(device)) return "";
    const std::string_view adapter = std::string_view(device.name).substr(space + 1);
    const bool is_adapter = std::any_of(adapter.begin(), adapter.end(), [](char c) { return c >= '0' && c <= '9'; });
    const std::string host(trimmed(std::string_view(device.name).substr(0, space)));
    return is_adapter && host.find(' ') == std::string::npos ? host : "";
}

IbFabric ibnetdiscover_from_text(const std::string& text, const std::string& file) {
    check_foreign_text(text, file);
    return IbnetdiscoverReader(text, file).finish();
}

FabricDescription fabric_of(const IbFabric& ib) {
    std::vector<std::vector<std::int64_t>> neighbours(ib.devices.size());
    for (const IbCable& cable : ib.cables) {
        neighbours[static_cast<std::size_t>(cable.a)].push_back(cable.b);
        neighbours[static_cast<std::size_t>(cable.b)].push_back(cable.a);
    }
    const std::vector<std::int64_t> tier = switch_tiers(ib, neighbours);
    FabricDescription fabric;
    fabric.format = "ibnetdiscover";
    fabric.notes = ib.notes;
    std::vector<std::int64_t> place(ib.devices.size(), -1);
    for (std::size_t i = 0; i < ib.devices.size(); ++i) {
        if (!ib.devices[i].is_switch) continue;
        place[i] = static_cast<std::int64_t>(fabric.switches.size());
        FabricSwitch one;
        one.name = ib.devices[i].name;
        fabric.switches.push_back(std::move(one));
    }
    std::int64_t unnamed = 0;
    std::set<std::string> known;
    for (std::size_t i = 0; i < ib.devices.size(); ++i) {
        if (!ib.devices[i].is_switch) continue;
        FabricSwitch& self = fabric.switches[static_cast<std::size_t>(place[i])];
        std::map<std::int64_t, std::int64_t> below;  // switch -> cables
        for (const std::int64_t other : neighbours[i]) {
            const auto at = static_cast<std::size_t>(other);
            const IbDevice& device = ib.devices[at];
            if (device.is_switch) {
                if (tier[at] < tier[i] && tier[at] > 0) ++below[place[at]];
            } else if (is_aggregation_node(device)) {
                continue;
            } else if (const std::string host = ib_host(device); host.empty()) {
                ++self.other_ports;
                ++unnamed;
            } else {
                self.nodes.push_back(host);
                if (known.insert(host).second) fabric.nodes.push_back(host);
            }
        }
        for (const auto& [down, cables] : below) {
            self.switches.push_back(down);
            self.switch_links.push_back(cables);
        }
    }
    if (unnamed > 0) {
        fabric.notes.add(std::to_string(unnamed) +
                         " adapters name their product, not their host: their nodes are not counted");
    }
    fabric.counts_cables = true;
    for (const IbCable& cable : ib.cables) {
        fabric.link_gb_per_s_per_direction =
            fabric.link_gb_per_s_per_direction == 0
                ? cable.gb_per_s_per_direction
                : std::min(fabric.link_gb_per_s_per_direction, cable.gb_per_s_per_direction);
    }
    return fabric;
}

}  // namespace orrery::topologies
