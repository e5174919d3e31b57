// Comparisons as text and as orrery.comparison/1.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/enum_names.h"
#include "core/error.h"
#include "reports/comparison.h"
#include "reports/table.h"

namespace orrery::reports {
namespace {

using json = nlohmann::ordered_json;

std::string row_label(Quantity quantity) {
    static constexpr auto kNames =
        name_table<Quantity::bytes_sent>({"step time", "busy", "peak memory", "bytes moved"});
    return std::string(kNames[quantity]);
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

/// Bytes are counted, not estimated, so equal and nearly equal values are shown differently.
std::string error_text(const ComparisonRow& row) {
    if (row.quantity == Quantity::bytes_sent && row.predicted == row.measured) return "equal";
    return row.error ? format_signed_percent(*row.error, row.quantity == Quantity::bytes_sent ? 4 : 1) : "n/a";
}

std::string error_text(const std::optional<double>& error) {
    return error ? format_signed_percent(*error) : "n/a";
}

std::string row_label(const ComparisonRow& row) {
    return row_label(row.quantity) + (row.stream.empty() ? "" : ", " + row.stream);
}

std::string title_of(const Comparison& comparison) {
    return comparison.plan_name + " (" + comparison.strategy + ")" + (comparison.judged ? "" : ", not judged");
}

std::string notes_text(const Comparison& comparison) {
    std::string text;
    for (const std::string& note : comparison.notes) text += "  - " + note + "\n";
    return text.empty() ? "" : "\nNotes\n" + text;
}

std::string parts_text(const Comparison& comparison) {
    Table table({{"part", Align::left}, {"predicted"}, {"measured"}, {"error"}, {"hidden: predicted"}, {"measured"}});
    for (const PartRow& row : comparison.parts) {
        const bool hides = row.predicted_hidden_s + row.measured_hidden_s > 0;
        table.add_row({row.part, format_seconds(row.predicted_s), format_seconds(row.measured_s), error_text(row.error),
                       hides ? format_seconds(row.predicted_hidden_s) : "",
                       hides ? format_seconds(row.measured_hidden_s) : ""});
    }
    return "\nWhere the step time goes, mean over ranks; hidden: overlapped with computation\n" + table.to_text(2);
}

std::string counted_text(const Comparison& comparison) {
    std::string text;
    if (!comparison.collectives.empty()) {
        Table table({{"stream", Align::left}, {"kind", Align::left}, {"predicted"}, {"measured"}});
        for (const CollectiveRow& row : comparison.collectives) {
            table.add_row({row.stream, row.kind, format_integer(row.predicted_bytes),
                           row.measured_bytes == row.predicted_bytes ? "equal" : format_integer(row.measured_bytes)});
        }
        text += "\nBytes that all ranks send in a step\n" + table.to_text(2);
    }
    if (!comparison.memory.empty()) {
        Table table({{"memory", Align::left}, {"predicted"}, {"measured"}});
        for (const MemoryRow& row : comparison.memory) {
            table.add_row({row.part, format_memory(row.predicted_bytes), format_memory(row.measured_bytes)});
        }
        text += "\nMemory of the rank with the highest peak\n" + table.to_text(2);
    }
    return text;
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
                 {"waiting: predicted"},
                 {"measured"}});
    for (const InstructionRow& row : comparison.worst) {
        worst.add_row({row.key, row.stage, format_seconds(row.predicted_s), format_seconds(row.measured_s),
                       format_seconds(row.predicted_wait_s), format_seconds(row.measured_wait_s)});
    }
    return fmt::format(
        "\nBy phase, seconds per step, mean over ranks ({} instructions joined; {} only predicted, {} only "
        "measured)\n{}\nInstructions with the largest errors\n{}",
        format_integer(comparison.joined), format_integer(comparison.only_predicted),
        format_integer(comparison.only_measured), phases.to_text(2), worst.to_text(2));
}

json error_json(const std::optional<double>& error) {
    return error ? json(*error) : json(nullptr);
}

std::string agreement_text(const Agreement& agreement) {
    std::string text;
    const auto add = [&](const std::string& label, const std::optional<double>& value) {
        if (value) text += fmt::format("{}: {}\n", label, format_percent(*value));
    };
    add("median error of step time", agreement.median_step_time_error);
    add("  largest", agreement.worst_step_time_error);
    if (agreement.rank_correlation) {
        text += fmt::format("rank correlation of step times (Spearman): {:.3f}\n", *agreement.rank_correlation);
    }
    add("median error of peak memory", agreement.median_memory_error);
    add("  largest", agreement.worst_memory_error);
    add("median error of step time, plans that are not judged", agreement.median_error_not_judged);
    text += fmt::format("bytes moved as predicted: {} of {} plans\n", agreement.equal_bytes, agreement.plans);
    return "\n" + text;
}

json agreement_json(const Agreement& agreement) {
    return {{"plans", agreement.plans},
            {"judged", agreement.judged},
            {"median_step_time_error", error_json(agreement.median_step_time_error)},
            {"worst_step_time_error", error_json(agreement.worst_step_time_error)},
            {"rank_correlation", error_json(agreement.rank_correlation)},
            {"median_memory_error", error_json(agreement.median_memory_error)},
            {"worst_memory_error", error_json(agreement.worst_memory_error)},
            {"median_step_time_error_not_judged", error_json(agreement.median_error_not_judged)},
            {"plans_of_equal_bytes", agreement.equal_bytes}};
}

json details_object(const Comparison& comparison) {
    json parts = json::array(), collectives = json::array(), memory = json::array();
    for (const PartRow& row : comparison.parts) {
        parts.push_back({{"part", row.part},
                         {"predicted_s", row.predicted_s},
                         {"measured_s", row.measured_s},
                         {"error", error_json(row.error)},
                         {"predicted_hidden_s", row.predicted_hidden_s},
                         {"measured_hidden_s", row.measured_hidden_s}});
    }
    for (const CollectiveRow& row : comparison.collectives) {
        collectives.push_back({{"stream", row.stream},
                               {"kind", row.kind},
                               {"predicted_bytes", row.predicted_bytes},
                               {"measured_bytes", row.measured_bytes}});
    }
    for (const MemoryRow& row : comparison.memory) {
        memory.push_back(
            {{"part", row.part}, {"predicted_bytes", row.predicted_bytes}, {"measured_bytes", row.measured_bytes}});
    }
    return {{"parts", std::move(parts)}, {"collectives", std::move(collectives)}, {"memory", std::move(memory)}};
}

json comparison_object(const Comparison& comparison) {
    json rows = json::array(), phases = json::array(), worst = json::array(), details = details_object(comparison);
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
            {"parts", std::move(details["parts"])},
            {"collectives", std::move(details["collectives"])},
            {"memory", std::move(details["memory"])},
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
        table.add_row({row_label(row), row.scope, value_text(row.quantity, row.predicted),
                       value_text(row.quantity, row.measured), error_text(row)});
    }
    std::string text = title_of(comparison) + "\n" + table.to_text(2);
    if (!comparison.parts.empty()) text += parts_text(comparison);
    text += counted_text(comparison);
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
            table.add_row({name, row_label(row), value_text(row.quantity, row.predicted),
                           value_text(row.quantity, row.measured), error_text(row)});
            name.clear();
        }
    }
    std::string text =
        table.to_text() + "busy: mean over all ranks; peak memory: the worst rank; bytes moved: all ranks\n";
    return text + agreement_text(agreement_of(comparisons));
}

std::string comparisons_json(std::span<const Comparison> comparisons) {
    const Agreement agreement = agreement_of(comparisons);
    json document = {{"schema", "orrery.comparison/1"},
                     {"median_step_time_error", error_json(agreement.median_step_time_error)},
                     {"agreement", agreement_json(agreement)}};
    json list = json::array();
    for (const Comparison& comparison : comparisons) list.push_back(comparison_object(comparison));
    document["comparisons"] = std::move(list);
    return document.dump(2) + "\n";
}

}  // namespace orrery::reports
