// A TopologyReport as text and as JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "reports/table.h"
#include "reports/topology_report.h"

namespace orrery::reports {
namespace {

using nlohmann::ordered_json;

std::string vertices_text(const TopologyReport& report) {
    Table table({{"vertices", Align::left}, {"count"}, {"a node"}});
    for (const VertexClass& one : report.vertices) {
        const bool inside = !is_fabric_switch(one.kind);
        table.add_row({name_of(one.kind), format_integer(one.count),
                       inside ? format_integer(one.count / report.nodes) : std::string("-")});
    }
    return table.to_text();
}

std::string links_text(const TopologyReport& report) {
    Table table({{"links", Align::left},
                 {"count"},
                 {"GB/s each way"},
                 {"latency us"},
                 {"efficiency"},
                 {"profile", Align::left},
                 {"figures by", Align::left}});
    for (const LinkClass& one : report.links) {
        table.add_row({name_of(one.kind),
                       format_integer(one.count) + (one.failed > 0 ? fmt::format(" ({} failed)", one.failed) : ""),
                       format_fixed(one.gb_per_s_per_direction, 2), format_fixed(one.latency_us, 2),
                       format_percent(one.efficiency), one.profile.empty() ? "-" : one.profile, one.provenance});
    }
    return table.to_text();
}

std::string hops_text(const Way& way) {
    std::string text;
    for (const Hop& hop : way.hops) {
        text += fmt::format("   {} -> {}  {}, {} GB/s, {} us{}\n", hop.from, hop.to, name_of(hop.kind),
                            format_fixed(hop.gb_per_s_per_direction, 2), format_fixed(hop.latency_us, 2),
                            hop.stripes > 1 ? fmt::format(", striped over {}", hop.stripes) : "");
    }
    return text;
}

/// The fabric switches on the route.
std::string chain_text(const Way& way) {
    std::string text;
    for (const Hop& hop : way.hops) {
        const bool between = hop.kind == topologies::LinkKind::trunk || hop.kind == topologies::LinkKind::core_trunk;
        if (between) text += (text.empty() ? hop.from : "") + " -> " + hop.to;
    }
    return text;
}

std::string ways_text(const Ways& ways) {
    std::string text = fmt::format("\nFrom rank {} to rank {} ({}{}): {} of equal length", ways.from, ways.to,
                                   ways.distance, ways.forwarded ? "; forwarded to the receiver's rail" : "",
                                   ways.equal == 1 ? "one way" : format_integer(ways.equal) + " ways");
    if (ways.equal > static_cast<std::int64_t>(ways.listed.size())) {
        text += fmt::format(", {} of them", ways.listed.size());
    }
    text += ways.listed.size() > 1 ? "; the first is taken\n" : "\n";
    for (std::size_t i = 0; i < ways.listed.size(); ++i) {
        const Way& way = ways.listed[i];
        text += fmt::format("{}. {} hops, {} us, narrowest {} GB/s", i + 1, way.hops.size(),
                            format_fixed(way.latency_us, 2), format_fixed(way.gb_per_s_per_direction, 2));
        text += i == 0 ? "\n" + hops_text(way) : ": " + chain_text(way) + "\n";
    }
    return text;
}

ordered_json ways_json(const Ways& ways) {
    ordered_json listed = ordered_json::array();
    for (const Way& way : ways.listed) {
        ordered_json hops = ordered_json::array();
        for (const Hop& hop : way.hops) {
            hops.push_back({{"from", hop.from},
                            {"to", hop.to},
                            {"kind", name_of(hop.kind)},
                            {"stripes", hop.stripes},
                            {"bandwidth_gb_per_s_per_direction", hop.gb_per_s_per_direction},
                            {"latency_us", hop.latency_us}});
        }
        listed.push_back({{"hops", std::move(hops)},
                          {"latency_us", way.latency_us},
                          {"bandwidth_gb_per_s_per_direction", way.gb_per_s_per_direction}});
    }
    return {{"from", ways.from},           {"to", ways.to},       {"distance", ways.distance},
            {"forwarded", ways.forwarded}, {"equal", ways.equal}, {"listed", std::move(listed)}};
}

}  // namespace

std::string topology_text(const TopologyReport& report) {
    std::string text =
        fmt::format("{}: {} {} of {} {}, {} NICs each; fabric {}\n{}\n\n", report.cluster, format_integer(report.nodes),
                    report.nodes == 1 ? "node" : "nodes", format_integer(report.devices_per_node), report.device,
                    report.nics_per_node, report.fabric, report.source);
    text += vertices_text(report) + "\n" + links_text(report);
    if (report.bisection_gb_per_s > 0) {
        const double a_device =
            report.bisection_gb_per_s / (static_cast<double>(report.nodes * report.devices_per_node) / 2);
        text += fmt::format("\nBisection bandwidth {} GB/s one way, {} GB/s for each device of a half\n",
                            format_fixed(report.bisection_gb_per_s, 1), format_fixed(a_device, 2));
    }
    if (report.ways) text += ways_text(*report.ways);
    if (!report.notes.empty()) text += "\nNotes\n";
    for (const std::string& note : report.notes) text += "  - " + note + "\n";
    return text;
}

std::string topology_json(const TopologyReport& report) {
    ordered_json json{{"schema", "orrery.topology/1"},
                      {"cluster", report.cluster},
                      {"source", report.source},
                      {"device", report.device},
                      {"fabric", report.fabric},
                      {"nodes", report.nodes},
                      {"devices_per_node", report.devices_per_node},
                      {"nics_per_node", report.nics_per_node},
                      {"vertices", ordered_json::array()},
                      {"links", ordered_json::array()}};
    for (const VertexClass& one : report.vertices) {
        json["vertices"].push_back({{"kind", name_of(one.kind)}, {"count", one.count}});
    }
    for (const LinkClass& one : report.links) {
        json["links"].push_back({{"kind", name_of(one.kind)},
                                 {"count", one.count},
                                 {"failed", one.failed},
                                 {"bandwidth_gb_per_s_per_direction", one.gb_per_s_per_direction},
                                 {"latency_us", one.latency_us},
                                 {"efficiency", one.efficiency},
                                 {"profile", one.profile},
                                 {"provenance", one.provenance}});
    }
    if (report.bisection_gb_per_s > 0) json["bisection_bandwidth_gb_per_s"] = report.bisection_gb_per_s;
    if (report.ways) json["paths"] = ways_json(*report.ways);
    json["notes"] = report.notes;
    return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace orrery::reports
