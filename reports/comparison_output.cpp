// How a comparison is shown: text for people, orrery.comparison/1 for programs.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "reports/comparison.h"
#include "reports/table.h"

namespace orrery::reports {
namespace {

using json = nlohmann::ordered_json;

std::string label_of(Quantity quantity) {
    switch (quantity) {
        case Quantity::step_time_s:
            return "step time";
        case Quantity::busy_s:
            return "busy";
        case Quantity::peak_memory_bytes:
            return "peak memory";
        case Quantity::bytes_sent:
            return "bytes moved";
    }
    return "?";
}

std::string value_text(Quantity quantity, double value) {
    switch (quantity) {
        case Quantity::step_time_s:
        case Quantity::busy_s:
            return format_seconds(value);
        case Quantity::peak_memory_bytes:
            return format_memory(static_cast<std::int64_t>(value));
        case Quantity::bytes_sent:
            return format_bytes(value);
    }
    return "?";
}

/// Bytes are counted, not estimated, so equal and nearly equal are told apart.
std::string error_text(const ComparisonRow& row) {
    if (row.quantity == Quantity::bytes_sent && row.predicted == row.measured) return "equal";
    return row.error ? format_signed_percent(*row.error, row.quantity == Quantity::bytes_sent ? 4 : 1) : "n/a";
}

std::string error_text(const std::optional<double>& error) {
    return error ? format_signed_percent(*error) : "n/a";
}

std::string label_of(const ComparisonRow& row) {
    return label_of(row.quantity) + (row.stream.empty() ? "" : ", " + row.stream);
}

std::string title_of(const Comparison& comparison) {
    return comparison.plan_name + " (" + comparison.strategy + ")" + (comparison.judged ? "" : ", not judged");
}

std::string notes_text(const Comparison& comparison) {
    std::string text;
    for (const std::string& note : comparison.notes) text += "  - " + note + "\n";
    return text.empty() ? "" : "\nNotes\n" + text;
}

std::string spans_text(const Comparison& comparison) {
    Table phases(
        {{"phase", Align::left}, {"stream", Align::left}, {"instructions"}, {"predicted"}, {"measured"}, {"error"}});
    for (const PhaseRow& row : comparison.phases) {
        phases.add_row({row.phase, row.stream, format_integer(row.instructions), format_seconds(row.predicted_s),
                        format_seconds(row.measured_s), error_text(row.error)});
    }
    Table worst({{"instruction", Align::left},
                 {"stage", Align::left},
                 {"predicted"},
                 {"measured"},
                 {"of it waiting: predicted"},
                 {"measured"}});
    for (const InstructionRow& row : comparison.worst) {
        worst.add_row({row.key, row.stage, format_seconds(row.predicted_s), format_seconds(row.measured_s),
                       format_seconds(row.predicted_wait_s), format_seconds(row.measured_wait_s)});
    }
    return fmt::format(
        "\nBy phase, seconds a step, mean over ranks ({} instructions joined; {} only predicted, {} only "
        "measured)\n{}\nThe instructions that miss most\n{}",
        format_integer(comparison.joined), format_integer(comparison.only_predicted),
        format_integer(comparison.only_measured), phases.to_text(2), worst.to_text(2));
}

json error_json(const std::optional<double>& error) {
    return error ? json(*error) : json(nullptr);
}

json comparison_object(const Comparison& comparison) {
    json rows = json::array(), phases = json::array(), worst = json::array();
    for (const ComparisonRow& row : comparison.rows) {
        json object = {{"quantity", name_of(row.quantity)}, {"scope", row.scope}};
        if (!row.stream.empty()) object["stream"] = row.stream;
        const bool whole = row.quantity == Quantity::peak_memory_bytes || row.quantity == Quantity::bytes_sent;
        object["predicted"] = whole ? json(static_cast<std::int64_t>(row.predicted)) : json(row.predicted);
        object["measured"] = whole ? json(static_cast<std::int64_t>(row.measured)) : json(row.measured);
        object["error"] = error_json(row.error);
        rows.push_back(std::move(object));
    }
    for (const PhaseRow& row : comparison.phases) {
        phases.push_back({{"phase", row.phase},
                          {"stream", row.stream},
                          {"instructions", row.instructions},
                          {"predicted_s", row.predicted_s},
                          {"measured_s", row.measured_s},
                          {"error", error_json(row.error)}});
    }
    for (const InstructionRow& row : comparison.worst) {
        worst.push_back({{"stage", row.stage},
                         {"key", row.key},
                         {"stream", row.stream},
                         {"predicted_s", row.predicted_s},
                         {"measured_s", row.measured_s},
                         {"predicted_wait_s", row.predicted_wait_s},
                         {"measured_wait_s", row.measured_wait_s}});
    }
    return {{"plan_name", comparison.plan_name},
            {"strategy", comparison.strategy},
            {"judged", comparison.judged},
            {"rows", std::move(rows)},
            {"phases", std::move(phases)},
            {"worst_instructions", std::move(worst)},
            {"joined_instructions", comparison.joined},
            {"only_predicted_instructions", comparison.only_predicted},
            {"only_measured_instructions", comparison.only_measured},
            {"notes", comparison.notes}};
}

}  // namespace

std::string comparison_text(const Comparison& comparison) {
    Table table({{"quantity", Align::left}, {"of", Align::left}, {"predicted"}, {"measured"}, {"error"}});
    for (const ComparisonRow& row : comparison.rows) {
        table.add_row({label_of(row), row.scope, value_text(row.quantity, row.predicted),
                       value_text(row.quantity, row.measured), error_text(row)});
    }
    std::string text = title_of(comparison) + "\n" + table.to_text(2);
    if (comparison.joined > 0) text += spans_text(comparison);
    return text + notes_text(comparison);
}

std::string comparisons_text(std::span<const Comparison> comparisons) {
    Table table({{"plan", Align::left}, {"quantity", Align::left}, {"predicted"}, {"measured"}, {"error"}});
    for (std::size_t i = 0; i < comparisons.size(); ++i) {
        if (i > 0) table.add_rule();
        std::string name = comparisons[i].plan_name + (comparisons[i].judged ? "" : " (not judged)");
        for (const ComparisonRow& row : comparisons[i].rows) {
            if (row.scope != kAllRanks) continue;
            table.add_row({name, label_of(row), value_text(row.quantity, row.predicted),
                           value_text(row.quantity, row.measured), error_text(row)});
            name.clear();
        }
    }
    std::string text =
        table.to_text() + "busy: mean over all ranks; peak memory: the worst rank; bytes moved: all ranks\n";
    if (const auto median = median_step_time_error(comparisons)) {
        text += "\nmedian error of step time: " + format_percent(*median) + "\n";
    }
    return text;
}

std::string comparisons_json(std::span<const Comparison> comparisons) {
    json document = {{"schema", "orrery.comparison/1"},
                     {"median_step_time_error", error_json(median_step_time_error(comparisons))}};
    json list = json::array();
    for (const Comparison& comparison : comparisons) list.push_back(comparison_object(comparison));
    document["comparisons"] = std::move(list);
    return document.dump(2) + "\n";
}

}  // namespace orrery::reports
