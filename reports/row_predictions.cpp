#include "reports/row_predictions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "core/enum_names.h"
#include "reports/error_json.h"
#include "reports/table.h"

namespace orrery::reports {
namespace {

using json = nlohmann::ordered_json;

std::optional<double> error_of(const std::optional<double>& predicted, const std::optional<double>& measured) {
    if (!predicted || !measured || *measured <= 0) return {};
    return *predicted / *measured - 1;
}

struct Collected {
    SourceSummary summary;
    std::vector<double> step_time, peak_memory;

    void add(const RowPrediction& row) {
        ++(row.skipped.empty() ? summary.rows : summary.skipped);
        if (!row.skipped.empty()) return;
        if (const auto error = error_of(row.predicted_step_time_s, row.measured_step_time_s)) {
            step_time.push_back(*error);
        }
        if (const auto error = error_of(row.predicted_peak_memory_gib, row.measured_peak_memory_gib)) {
            peak_memory.push_back(*error);
            std::vector<std::string>& kinds = summary.memory_kinds;
            if (std::find(kinds.begin(), kinds.end(), row.memory_kind) == kinds.end()) kinds.push_back(row.memory_kind);
        }
    }
    SourceSummary finished() && {
        summary.step_time = error_summary(std::move(step_time));
        summary.peak_memory = error_summary(std::move(peak_memory));
        return std::move(summary);
    }
};

std::string shortened(const std::string& title) {
    constexpr std::size_t kMost = 52;
    return title.size() <= kMost ? title : title.substr(0, kMost - 3) + "...";
}

std::string value_text(const std::optional<double>& value, int decimals) {
    return value ? format_fixed(*value, decimals) : "-";
}
std::string seconds_text(const std::optional<double>& value) {
    return value ? format_seconds(*value) : "-";
}
std::string error_or_dash(const std::optional<double>& error) {
    return error ? format_signed_percent(*error) : "-";
}

std::string each_row_text(const std::vector<RowPrediction>& rows) {
    Table table({{"row", Align::left},
                 {"predicted"},
                 {"measured"},
                 {"error"},
                 {"memory", Align::left},
                 {"GiB: predicted"},
                 {"measured"},
                 {"error"},
                 {"in use"},
                 {"of"}});
    for (const RowPrediction& row : rows) {
        if (!row.skipped.empty()) continue;
        table.add_row({row.id, seconds_text(row.predicted_step_time_s), seconds_text(row.measured_step_time_s),
                       error_or_dash(error_of(row.predicted_step_time_s, row.measured_step_time_s)),
                       row.ran_out ? "ran out" : row.memory_kind, value_text(row.predicted_peak_memory_gib, 1),
                       value_text(row.measured_peak_memory_gib, 1),
                       error_or_dash(error_of(row.predicted_peak_memory_gib, row.measured_peak_memory_gib)),
                       value_text(row.predicted_memory_in_use_gib, 1), format_fixed(row.memory_allowed_gib, 0)});
    }
    return table.row_count() == 0 ? "" : table.to_text() + "\n";
}

std::string skipped_text(const std::vector<RowPrediction>& rows) {
    struct Group {
        std::size_t count = 0;
        std::string first;
    };
    std::map<std::string, Group> reasons;
    for (const RowPrediction& row : rows) {
        if (row.skipped.empty()) continue;
        Group& group = reasons[row.skipped.substr(0, row.skipped.find('\n'))];
        if (group.count++ == 0) group.first = row.id;
    }
    std::string text;
    for (const auto& [reason, group] : reasons) {
        text += fmt::format("  {} x {}{}\n", group.count, reason,
                            group.first.empty() ? "" : " (first: " + group.first + ")");
    }
    return text.empty() ? "" : "\nSkipped\n" + text;
}

std::string list_or_dash(const std::vector<std::string>& texts) {
    return texts.empty() ? "-" : comma_list(texts);
}

std::string inferred_text(const std::vector<RowPrediction>& rows) {
    std::map<std::string, std::size_t> facts;
    for (const RowPrediction& row : rows) {
        for (const std::string& fact : row.inferred) ++facts[fact];
    }
    std::string text;
    for (const auto& [fact, count] : facts) text += fmt::format("  {} x {}\n", count, fact);
    return text.empty() ? "" : "Facts inferred for these runs, which their sources do not state\n" + text;
}

std::string fit_text(const std::vector<RowPrediction>& rows) {
    const FitSummary fit = fit_of(rows);
    std::string text;
    if (fit.ran > 0) {
        text += fmt::format("Fit: of {} runs that ran, {} ({}) are said not to fit.\n", fit.ran, fit.ran_refused,
                            format_percent(static_cast<double>(fit.ran_refused) / static_cast<double>(fit.ran)));
    }
    if (fit.ran_out == 0) return text;
    text += fmt::format("Of {} runs that ran out of memory, {} are said to fit, {} with more than {} to spare",
                        fit.ran_out, fit.said_to_fit, fit.with_room, format_percent(FitSummary::kRoom));
    text += fit.said_to_fit == 0 ? ".\n"
                                 : fmt::format("; at most {} ({}).\n", format_percent(fit.most_spare), fit.roomiest);
    return text + inferred_text(rows);
}

std::string sweeps_text(const std::vector<RowPrediction>& rows) {
    const SweepSummary sweeps = sweeps_of(rows);
    return sweeps.sweeps == 0 ? "" : sweep_text(sweeps) + measured_regret_text(sweeps);
}

json sweeps_json(const SweepSummary& sweeps) {
    if (sweeps.sweeps == 0) return nullptr;
    return {{"sweeps", sweeps.sweeps},
            {"runs_median", sweeps.runs_median},
            {"regret_median", sweeps.regret_median},
            {"regret_p90", sweeps.regret_p90},
            {"regret_most", sweeps.regret_most},
            {"measured_first", kMeasuredFirst},
            {"measured_regret_median", sweeps.measured_regret_median},
            {"measured_regret_p90", sweeps.measured_regret_p90},
            {"measured_regret_most", sweeps.measured_regret_most},
            {"spearman_median", sweeps.spearman_median}};
}

/// 1 - needed / allowed; empty if either is not known.
std::optional<double> spare_of(const RowPrediction& row) {
    if (!row.skipped.empty() || !row.predicted_memory_in_use_gib || row.memory_allowed_gib <= 0) return {};
    return 1 - *row.predicted_memory_in_use_gib / row.memory_allowed_gib;
}

/// The rows whose fit is predicted wrongly, worst first.
std::string misfits_text(const std::vector<RowPrediction>& rows, bool ran_out) {
    std::vector<std::pair<double, const RowPrediction*>> wrong;
    for (const RowPrediction& row : rows) {
        const std::optional<double> spare = spare_of(row);
        if (!spare || row.ran_out != ran_out || (!row.ran_out && !row.counts)) continue;
        if (ran_out ? *spare >= 0 : *spare < 0) wrong.emplace_back(std::abs(*spare), &row);
    }
    if (wrong.empty()) return "";
    std::stable_sort(wrong.begin(), wrong.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    Table table({{"row", Align::left},
                 {"in use"},
                 {"allowed"},
                 {ran_out ? "to spare" : "too much"},
                 {"memory error"},
                 {"predicted for the fullest stage", Align::left}});
    for (const auto& [share, row] : wrong) {
        table.add_row({row->id, value_text(row->predicted_memory_in_use_gib, 1),
                       format_fixed(row->memory_allowed_gib, 1), format_percent(share),
                       error_or_dash(error_of(row->predicted_peak_memory_gib, row->measured_peak_memory_gib)),
                       row->memory_words});
    }
    return (ran_out ? "\nRan out of memory, and are said to fit (GiB)\n" : "\nRan, and are said not to fit (GiB)\n") +
           table.to_text();
}

json value_of(const std::optional<double>& value) {
    return value ? json(*value) : json(nullptr);
}

json errors_json(const ErrorSummary& errors) {
    return errors.rows == 0 ? json(nullptr) : error_json(errors);
}

json sensitivity_json(const program::Sensitivity& sensitivity) {
    json cells = json::object();
    for (const auto& [cell, seconds] : sensitivity) cells[program::name_of(cell)] = seconds;
    return cells;
}

json summary_json(const SourceSummary& summary) {
    return {{"source", summary.source},
            {"predicted", summary.rows},
            {"skipped", summary.skipped},
            {"step_time", errors_json(summary.step_time)},
            {"peak_memory", errors_json(summary.peak_memory)},
            {"memory_kinds", summary.memory_kinds}};
}

json fit_json(const FitSummary& fit) {
    return {{"ran", fit.ran},
            {"ran_said_not_to_fit", fit.ran_refused},
            {"ran_out_of_memory", fit.ran_out},
            {"ran_out_said_to_fit", fit.said_to_fit},
            {"ran_out_said_to_fit_with_room", fit.with_room},
            {"most_spare", fit.most_spare}};
}

}  // namespace

std::vector<SourceSummary> summarise(const std::vector<RowPrediction>& rows) {
    std::vector<Collected> sources;
    std::map<std::string, std::size_t> places;
    Collected all;
    all.summary.source = "all";
    for (const RowPrediction& row : rows) {
        if (!row.counts) continue;
        const auto [place, is_new] = places.emplace(row.source, sources.size());
        if (is_new) sources.emplace_back().summary.source = row.source;
        sources[place->second].add(row);
        all.add(row);
    }
    std::vector<SourceSummary> result;
    result.reserve(sources.size() + 1);
    for (Collected& source : sources) result.push_back(std::move(source).finished());
    result.push_back(std::move(all).finished());
    return result;
}

FitSummary fit_of(const std::vector<RowPrediction>& rows) {
    FitSummary fit;
    for (const RowPrediction& row : rows) {
        const std::optional<double> spare = spare_of(row);
        if (!spare) continue;
        if (row.ran_out) {
            ++fit.ran_out;
            if (*spare < 0) continue;
            ++fit.said_to_fit;
            fit.with_room += *spare > FitSummary::kRoom ? 1U : 0U;
            if (fit.roomiest.empty() || *spare > fit.most_spare) {
                fit.most_spare = *spare;
                fit.roomiest = row.id;
            }
        } else if (row.counts) {
            ++fit.ran;
            fit.ran_refused += *spare < 0 ? 1U : 0U;
        }
    }
    return fit;
}

SweepSummary sweeps_of(const std::vector<RowPrediction>& rows) {
    std::vector<SweepRun> runs;
    for (const RowPrediction& row : rows) {
        if (!row.counts || !row.skipped.empty() || !row.predicted_step_time_s || !row.measured_step_time_s) continue;
        runs.push_back({row.sweep, *row.predicted_step_time_s, *row.measured_step_time_s});
    }
    return sweep_summary(runs);
}

std::string row_predictions_text(const std::vector<RowPrediction>& rows, RowsText shown) {
    Table table({{"source", Align::left},
                 {"skipped"},
                 {"step time: rows"},
                 {"median"},
                 {"mean"},
                 {"p90"},
                 {"bias"},
                 {"memory", Align::left},
                 {"rows"},
                 {"median"},
                 {"mean"},
                 {"p90"},
                 {"bias"}});
    const std::vector<SourceSummary> sources = summarise(rows);
    for (const SourceSummary& source : sources) {
        if (&source == &sources.back()) table.add_rule();
        std::vector<std::string> cells{shortened(source.source),
                                       format_integer(static_cast<std::int64_t>(source.skipped))};
        for (std::string& cell : error_cells(source.step_time)) cells.push_back(std::move(cell));
        cells.push_back(&source == &sources.back() ? "" : list_or_dash(source.memory_kinds));
        for (std::string& cell : error_cells(source.peak_memory)) cells.push_back(std::move(cell));
        table.add_row(std::move(cells));
    }
    return (shown.each_row ? each_row_text(rows) : "") + table.to_text() +
           "Absolute errors of predicted against measured; bias: mean of the signed ones.\n" + sweeps_text(rows) +
           fit_text(rows) + (shown.misfits ? misfits_text(rows, false) + misfits_text(rows, true) : "") +
           skipped_text(rows);
}

std::string row_predictions_json(const std::vector<RowPrediction>& rows) {
    json list = json::array();
    for (const RowPrediction& row : rows) {
        list.push_back(
            {{"id", row.id},
             {"implementation", row.implementation.empty() ? json(nullptr) : json(row.implementation)},
             {"predicted_step_time_s", value_of(row.predicted_step_time_s)},
             {"measured_step_time_s", value_of(row.measured_step_time_s)},
             {"predicted_peak_memory_gib", value_of(row.predicted_peak_memory_gib)},
             {"measured_peak_memory_gib", value_of(row.measured_peak_memory_gib)},
             {"memory_kind", row.memory_kind.empty() ? json(nullptr) : json(row.memory_kind)},
             {"predicted_memory_in_use_gib", value_of(row.predicted_memory_in_use_gib)},
             {"memory_allowed_gib", row.memory_allowed_gib > 0 ? json(row.memory_allowed_gib) : json(nullptr)},
             {"ran_out_of_memory", row.ran_out},
             {"inferred", row.inferred},
             {"skipped", row.skipped.empty() ? json(nullptr) : json(row.skipped)}});
        if (!row.sensitivity.empty()) list.back()["sensitivity_s"] = sensitivity_json(row.sensitivity);
    }
    std::vector<SourceSummary> sources = summarise(rows);
    json summary = summary_json(sources.back());
    summary.erase("source");
    summary.erase("memory_kinds");
    summary["fit"] = fit_json(fit_of(rows));
    summary["sweeps"] = sweeps_json(sweeps_of(rows));
    sources.pop_back();
    summary["sources"] = json::array();
    for (const SourceSummary& source : sources) summary["sources"].push_back(summary_json(source));
    const json document{{"schema", "orrery.row_predictions/1"}, {"rows", list}, {"summary", summary}};
    // A source's title may not be valid UTF-8.
    return document.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace orrery::reports
