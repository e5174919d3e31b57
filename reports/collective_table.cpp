#include "reports/collective_table.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "reports/table.h"

namespace orrery::reports {
namespace {

using json = nlohmann::ordered_json;

/// In GB/s; 0 if no time passes (one rank).
double algorithm_bandwidth(const CollectiveLine& line) {
    return line.seconds > 0 ? static_cast<double>(line.bytes) / line.seconds / 1e9 : 0;
}

}  // namespace

std::string collective_table_text(const CollectiveTable& table) {
    Table text({{"bytes"},
                {"elements"},
                {"time"},
                {"algbw GB/s"},
                {"busbw GB/s"},
                {"algorithm", Align::left},
                {"protocol", Align::left},
                {"channels"}});
    for (const CollectiveLine& line : table.lines) {
        const double algbw = algorithm_bandwidth(line);
        text.add_row({format_integer(line.bytes), format_integer(line.bytes / table.element_bytes),
                      format_seconds(line.seconds), format_fixed(algbw, 2), format_fixed(algbw * table.bus_factor, 2),
                      line.algorithm, line.protocol.empty() ? "-" : line.protocol,
                      line.channels > 0 ? format_integer(line.channels) : "-"});
    }
    return fmt::format("{} of {} on {}: {} ranks on {} node{}\n\n{}", table.op, table.dtype, table.cluster, table.ranks,
                       table.nodes, table.nodes == 1 ? "" : "s", text.to_text());
}

std::string collective_table_json(const CollectiveTable& table) {
    json lines = json::array();
    for (const CollectiveLine& line : table.lines) {
        const double algbw = algorithm_bandwidth(line);
        lines.push_back({{"bytes", line.bytes},
                         {"elements", line.bytes / table.element_bytes},
                         {"time_us", line.seconds * 1e6},
                         {"algbw_gb_per_s", algbw},
                         {"busbw_gb_per_s", algbw * table.bus_factor},
                         {"algorithm", line.algorithm},
                         {"protocol", line.protocol.empty() ? json(nullptr) : json(line.protocol)},
                         {"channels", line.channels > 0 ? json(line.channels) : json(nullptr)}});
    }
    const json document{{"schema", "orrery.collectives/1"},
                        {"cluster", table.cluster},
                        {"op", table.op},
                        {"dtype", table.dtype},
                        {"ranks", table.ranks},
                        {"nodes", table.nodes},
                        {"devices", table.devices},
                        {"rows", lines}};
    return document.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace orrery::reports
