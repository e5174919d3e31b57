#include "reports/import_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "reports/table.h"

namespace orrery::reports {
namespace {

using nlohmann::ordered_json;
using topologies::FabricDescription;
using topologies::FabricSwitch;
using topologies::NcclChannel;
using topologies::NcclGraph;
using topologies::NcclGraphs;
using topologies::NodeDescription;
using topologies::SmiPath;

constexpr std::size_t kMostRows = 64;

/// All NICs at the shortest distance: "mlx5_0, mlx5_1 (PXB)".
std::string nearest_nics(const NodeDescription& node, std::size_t gpu) {
    const std::vector<SmiPath>& row = node.gpu_to_nic[gpu];
    if (row.empty()) return "-";
    const SmiPath nearest = *std::min_element(row.begin(), row.end());
    std::string names;
    for (std::size_t nic = 0; nic < row.size(); ++nic) {
        if (row[nic] == nearest) names += (names.empty() ? "" : ", ") + node.nics[nic].name;
    }
    return names + " (" + name_of(nearest) + ")";
}

std::string nvlinks_text(const NodeDescription& node) {
    if (!node.tells_nvlinks) return "NVLinks not stated";
    if (node.nvlinks_per_gpu == 0) return "no NVLinks";
    const std::string links = fmt::format("{} NVLinks per GPU ", node.nvlinks_per_gpu);
    if (node.nvswitches != 0) {
        return links + (node.nvswitches > 0 ? fmt::format("to {} NVSwitches", node.nvswitches) : "to NVSwitches");
    }
    return links + fmt::format("at most, between {} pairs of GPUs", node.pairs.size());
}

std::string node_text(const NodeDescription& node) {
    std::string text =
        fmt::format("{}: {} GPUs, {} NICs, {} sockets, {} PCIe switches; {}\n\n", node.format, node.gpus.size(),
                    node.nics.size(), node.sockets, node.switch_sockets.size(), nvlinks_text(node));
    Table table({{"GPU"}, {"name", Align::left}, {"socket"}, {"PCIe switch"}, {"nearest NICs", Align::left}});
    for (std::size_t gpu = 0; gpu < std::min(node.gpus.size(), kMostRows); ++gpu) {
        const topologies::NodeGpu& one = node.gpus[gpu];
        table.add_row({std::to_string(gpu), one.name, std::to_string(one.socket),
                       one.pcie_switch < 0 ? "-" : std::to_string(one.pcie_switch), nearest_nics(node, gpu)});
    }
    return text + table.to_text();
}

std::string range_of(const std::vector<std::int64_t>& values) {
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    return *least == *most ? std::to_string(*most) : fmt::format("{} to {}", *least, *most);
}

std::string fabric_text(const FabricDescription& fabric) {
    std::string text = fmt::format(
        "{}{}: {} nodes, {} switches, {} blocks", fabric.format, fabric.name.empty() ? "" : ", topology " + fabric.name,
        format_integer(static_cast<std::int64_t>(fabric.nodes.size())),
        format_integer(static_cast<std::int64_t>(fabric.switches.size())), fabric.blocks.size());
    if (fabric.link_gb_per_s_per_direction > 0) {
        text += fmt::format(", cables of {} GB/s each way", format_fixed(fabric.link_gb_per_s_per_direction, 1));
    }
    text += "\n";
    if (fabric.switches.empty()) return text;
    const std::vector<std::int64_t> tiers = tiers_of(fabric);
    std::map<std::int64_t, std::vector<std::int64_t>> nodes, below;
    for (std::size_t i = 0; i < fabric.switches.size(); ++i) {
        nodes[tiers[i]].push_back(static_cast<std::int64_t>(fabric.switches[i].nodes.size()) +
                                  fabric.switches[i].other_ports);
        below[tiers[i]].push_back(static_cast<std::int64_t>(fabric.switches[i].switches.size()));
    }
    Table table({{"tier"}, {"switches"}, {"NICs or nodes each"}, {"switches below each"}});
    for (const auto& [tier, counts] : nodes) {
        table.add_row({std::to_string(tier), std::to_string(counts.size()), range_of(counts), range_of(below[tier])});
    }
    return text + "\n" + table.to_text();
}

std::string sequence_text(const NcclChannel& channel) {
    std::string text;
    if (!channel.nets.empty()) text += fmt::format("net {} - ", channel.nets.front());
    text += fmt::format("{}", fmt::join(channel.gpus, " "));
    if (channel.nets.size() > 1) text += fmt::format(" - net {}", channel.nets.back());
    return text;
}

std::string graphs_text(const NcclGraphs& graphs) {
    std::string text = "NCCL graph XML: the channels that NCCL's search chose\n\n";
    Table table({{"algorithm", Align::left},
                 {"pattern", Align::left},
                 {"channels"},
                 {"GB/s inside"},
                 {"GB/s between"},
                 {"all inside"},
                 {"paths", Align::left}});
    for (const NcclGraph& one : graphs.graphs) {
        table.add_row({topologies::name_of_graph(one.id), topologies::name_of_pattern(one.pattern),
                       std::to_string(one.channel_count), format_fixed(one.intra_gb_per_s_per_channel, 1),
                       format_fixed(one.inter_gb_per_s_per_channel, 1),
                       format_fixed(one.intra_gb_per_s_per_channel * static_cast<double>(one.channel_count), 1),
                       one.intra_path + ", " + one.inter_path});
    }
    text += table.to_text();
    for (const NcclGraph& one : graphs.graphs) {
        for (std::size_t i = 0; i < std::min(one.channels.size(), kMostRows); ++i) {
            text += fmt::format("{} {}: {}\n", topologies::name_of_graph(one.id), i, sequence_text(one.channels[i]));
        }
    }
    return text;
}

}  // namespace

std::string import_text(const topologies::ForeignFile& file) {
    std::string text = file.node     ? node_text(*file.node)
                       : file.fabric ? fabric_text(*file.fabric)
                                     : graphs_text(*file.graphs);
    if (!file.notes().empty()) text += "\nNotes on " + file.file + "\n";
    for (const std::string& note : file.notes()) text += "  - " + note + "\n";
    return text;
}

std::string channels_json(const NcclGraphs& graphs, const std::string& file) {
    ordered_json json{{"schema", "orrery.channels/1"}, {"file", file}, {"graphs", ordered_json::array()}};
    for (const NcclGraph& one : graphs.graphs) {
        ordered_json channels = ordered_json::array();
        for (const NcclChannel& channel : one.channels) {
            channels.push_back({{"gpus", channel.gpus}, {"nets", channel.nets}});
        }
        json["graphs"].push_back({{"algorithm", topologies::name_of_graph(one.id)},
                                  {"pattern", topologies::name_of_pattern(one.pattern)},
                                  {"intra_gb_per_s_per_channel", one.intra_gb_per_s_per_channel},
                                  {"inter_gb_per_s_per_channel", one.inter_gb_per_s_per_channel},
                                  {"inter_latency_us", one.inter_latency_us},
                                  {"intra_path", one.intra_path},
                                  {"inter_path", one.inter_path},
                                  {"channels", std::move(channels)}});
    }
    json["notes"] = graphs.notes.list();
    return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace orrery::reports
