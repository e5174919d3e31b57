#include "reports/collective_predictions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "reports/error_json.h"
#include "reports/table.h"

namespace orrery::reports {
namespace {

using json = nlohmann::ordered_json;

constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;
constexpr std::array<const char*, 3> kRegimes{"one_node", "across_nodes", "below_1_mib"};
constexpr std::array<const char*, 3> kRegimeTitles{"one node, 1 MiB and more", "across nodes, 1 MiB and more",
                                                   "below 1 MiB"};

std::size_t regime_of(const CollectivePrediction& row) {
    if (*row.bytes < kMebibyte) return 2;
    return row.nodes > 1 ? 1 : 0;
}

bool has_error(const CollectivePrediction& row) {
    return row.skipped.empty() && row.bytes && row.predicted_us && row.measured_us;
}

double error_of(const CollectivePrediction& row) {
    return *row.predicted_us / *row.measured_us - 1;
}

std::size_t regime_place(const std::string& regime) {
    const auto* found = std::find(kRegimes.begin(), kRegimes.end(), regime);
    return static_cast<std::size_t>(found - kRegimes.begin());
}

std::string microseconds_text(const std::optional<double>& time) {
    return time ? format_seconds(*time * 1e-6) : "-";
}

std::string each_row_text(const std::vector<CollectivePrediction>& rows) {
    Table table({{"row", Align::left},
                 {"device", Align::left},
                 {"op", Align::left},
                 {"type", Align::left},
                 {"ranks"},
                 {"nodes"},
                 {"bytes"},
                 {"algorithm", Align::left},
                 {"protocol", Align::left},
                 {"predicted"},
                 {"measured"},
                 {"error"}});
    for (const CollectivePrediction& row : rows) {
        if (!has_error(row)) continue;
        table.add_row({row.id, row.device, row.op, row.dtype, format_integer(row.ranks), format_integer(row.nodes),
                       format_integer(*row.bytes), row.algorithm, row.protocol, microseconds_text(row.predicted_us),
                       microseconds_text(row.measured_us), format_signed_percent(error_of(row))});
    }
    return table.row_count() == 0 ? "" : table.to_text() + "\n";
}

std::string skipped_text(const std::vector<CollectivePrediction>& rows) {
    std::map<std::string, std::pair<std::size_t, std::string>> reasons;  // by reason: count, and the first row
    for (const CollectivePrediction& row : rows) {
        if (row.skipped.empty()) continue;
        auto& [count, first] = reasons[row.skipped.substr(0, row.skipped.find('\n'))];
        if (count++ == 0) first = row.id;
    }
    std::string text;
    for (const auto& [reason, where] : reasons) {
        text += fmt::format("  {} x {} (first: {})\n", where.first, reason, where.second);
    }
    return text.empty() ? "" : "\nSkipped\n" + text;
}

template <typename Value>
json value_of(const std::optional<Value>& value) {
    return value ? json(*value) : json(nullptr);
}
json text_or_null(const std::string& text) {
    return text.empty() ? json(nullptr) : json(text);
}

json row_json(const CollectivePrediction& row) {
    return {{"id", row.id},
            {"source", text_or_null(row.source)},
            {"hardware", row.hardware},
            {"device", text_or_null(row.device)},
            {"op", row.op},
            {"dtype", text_or_null(row.dtype)},
            {"nccl_version", text_or_null(row.nccl_version)},
            {"ranks", row.ranks},
            {"nodes", row.nodes},
            {"bytes", value_of(row.bytes)},
            {"algorithm", text_or_null(row.algorithm)},
            {"protocol", text_or_null(row.protocol)},
            {"predicted_time_us", value_of(row.predicted_us)},
            {"measured_time_us", value_of(row.measured_us)},
            {"skipped", text_or_null(row.skipped)}};
}

}  // namespace

std::vector<CollectiveSummary> summarise(const std::vector<CollectivePrediction>& rows) {
    std::map<std::pair<std::string, std::size_t>, std::vector<double>> errors;
    std::array<std::vector<double>, kRegimes.size()> all;
    for (const CollectivePrediction& row : rows) {
        if (!has_error(row)) continue;
        const std::size_t regime = regime_of(row);
        errors[{row.device, regime}].push_back(error_of(row));
        all.at(regime).push_back(error_of(row));
    }
    std::vector<CollectiveSummary> summaries;
    for (auto& [key, values] : errors) {
        summaries.push_back({key.first, kRegimes.at(key.second), error_summary(std::move(values))});
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (!all.at(i).empty()) summaries.push_back({"all", kRegimes.at(i), error_summary(std::move(all.at(i)))});
    }
    return summaries;
}

std::string collective_predictions_text(const std::vector<CollectivePrediction>& rows, bool each_row) {
    Table table(
        {{"device", Align::left}, {"messages", Align::left}, {"rows"}, {"median"}, {"mean"}, {"p90"}, {"bias"}});
    std::string device;
    for (const CollectiveSummary& summary : summarise(rows)) {
        if (summary.device != device && table.row_count() > 0) table.add_rule();
        std::vector<std::string> cells = error_cells(summary.errors);
        cells.insert(cells.begin(), {summary.device == device ? "" : summary.device,
                                     std::string(kRegimeTitles.at(regime_place(summary.regime)))});
        table.add_row(std::move(cells));
        device = summary.device;
    }
    return (each_row ? each_row_text(rows) : "") + table.to_text() +
           "Absolute errors of predicted against measured; bias: mean of the signed ones.\n" + skipped_text(rows);
}

std::string collective_predictions_json(const std::vector<CollectivePrediction>& rows) {
    json list = json::array(), groups = json::array();
    std::size_t predicted = 0, skipped = 0;
    for (const CollectivePrediction& row : rows) {
        list.push_back(row_json(row));
        ++(row.skipped.empty() ? predicted : skipped);
    }
    for (const CollectiveSummary& summary : summarise(rows)) {
        json& group = groups.emplace_back(json{{"device", summary.device}, {"regime", summary.regime}});
        group.update(error_json(summary.errors));
    }
    const json document{{"schema", "orrery.collectives_validation/1"},
                        {"rows", list},
                        {"summary", {{"predicted", predicted}, {"skipped", skipped}, {"groups", groups}}}};
    // A source's text may not be valid UTF-8.
    return document.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace orrery::reports
