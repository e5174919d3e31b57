#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "core/units.h"
#include "reports/page/sections.h"
#include "reports/table.h"
#include "reports/time_part.h"

namespace orrery::reports {
namespace {

using program::DiffRow;
using program::PlanDiff;

/// From the total before, over each change, to the total after.
Chart waterfall(const std::string& title, const Measure& measure, double unit, const std::vector<DiffRow>& rows,
                const std::string& caption) {
    Chart chart{.title = title,
                .kind = ChartKind::floating_bars,
                .x = {.measure = {"part"}, .scale = AxisScale::categories, .categories = {"before"}},
                .y = {.measure = measure, .categories = {}, .from_zero = true},
                .series = {{.name = "total", .role = SeriesRole::total, .points = {}},
                           {.name = "more", .role = SeriesRole::increase, .points = {}},
                           {.name = "less", .role = SeriesRole::decrease, .points = {}}},
                .caption = caption};
    // In floating point, which is exact for all steps and memories that exist and has no overflow for others.
    double sum = 0;
    for (const DiffRow& row : rows) sum += static_cast<double>(row.before);
    const auto add = [&](SeriesRole role, double from, double change) {
        const auto series = std::find_if(chart.series.begin(), chart.series.end(),
                                         [&](const ChartSeries& one) { return one.role == role; });
        series->points.push_back({.x = static_cast<double>(chart.x.categories.size() - 1),
                                  .y = change / unit,
                                  .low = std::min(from, from + change) / unit,
                                  .high = std::max(from, from + change) / unit});
    };
    add(SeriesRole::total, 0, sum);
    for (const DiffRow& row : rows) {
        if (row.change() == 0) continue;
        chart.x.categories.push_back(part_label(row.what));
        const auto change = static_cast<double>(row.change());
        add(change > 0 ? SeriesRole::increase : SeriesRole::decrease, sum, change);
        sum += change;
    }
    chart.x.categories.emplace_back("after");
    add(SeriesRole::total, 0, sum);
    return chart;
}

PageTable changes_table(const std::string& title, const std::string& unit_name, double unit,
                        const std::vector<DiffRow>& rows) {
    PageTable table{.title = title,
                    .columns = {{"part", "", true}, {"before", unit_name}, {"after", unit_name}, {"change", unit_name}},
                    .rows = {},
                    .row_kind = "parts"};
    double sum_before = 0, sum_after = 0;
    const auto add = [&](const std::string& what, double before, double after) {
        const auto cell = [&](double value) { return number_cell(value / unit); };
        PageCell change = cell(after - before);
        if (after > before) change.text.insert(0, "+");
        table.rows.push_back({text_cell(what), cell(before), cell(after), change});
    };
    for (const DiffRow& row : rows) {
        const auto before = static_cast<double>(row.before), after = static_cast<double>(row.after);
        add(part_label(row.what), before, after);
        sum_before += before;
        sum_after += after;
    }
    add("sum", sum_before, sum_after);
    return table;
}

PageTable inputs_table(const PlanDiff& diff) {
    PageTable table{.title = "Inputs that differ",
                    .columns = {{"input", "", true}, {"before", "", true}, {"after", "", true}},
                    .rows = {},
                    .row_kind = "inputs"};
    for (const program::ChangedInput& input : diff.inputs) {
        table.rows.push_back({text_cell(input.path), text_cell(input.before.empty() ? "-" : input.before),
                              text_cell(input.after.empty() ? "-" : input.after)});
    }
    return table;
}

/// The file's name without folder and ending.
std::string plan_name(const std::string& path) {
    const std::string name = path.substr(path.rfind('/') + 1);
    const std::size_t dot = name.find('.', 1);
    return name.empty() ? path : name.substr(0, dot);
}

}  // namespace

PageSection diff_section(const PlanDiff& diff) {
    PageSection section{
        .title = fmt::format("From {} to {}", plan_name(diff.before), plan_name(diff.after)),
        .lead = fmt::format("How the steps of {} and {} differ, as {}.", diff.before, diff.after,
                            diff.measured ? "measured" : "predicted"),
        .facts = {{"Step",
                   fmt::format("{} \u2192 {}", format_seconds(diff.step_before_s), format_seconds(diff.step_after_s)),
                   format_signed_percent(diff.step_after_s / diff.step_before_s - 1)},
                  {"Tokens a second",
                   fmt::format("{} \u2192 {}", number_text(diff.tokens_per_s_before, NumberStyle::whole),
                               number_text(diff.tokens_per_s_after, NumberStyle::whole)),
                   format_signed_percent(diff.tokens_per_s_after / diff.tokens_per_s_before - 1)}},
        .charts = {waterfall("Time of a step", {"time", "s"}, kPicosecondsPerSecond, diff.time_ps,
                             "Of a mean rank: each bar is a change, and they lead from the step before to the step "
                             "after."),
                   waterfall("Memory", {"memory", "GiB"}, kGibibyte, diff.memory_bytes,
                             "Of the fullest rank, by what it holds.")},
        .tables = {changes_table("Time of a mean rank", "s", kPicosecondsPerSecond, diff.time_ps),
                   changes_table("Memory of the fullest rank", "GiB", kGibibyte, diff.memory_bytes)}};
    if (diff.inputs.empty()) {
        section.notes.emplace_back("No input differs.");
    } else {
        section.tables.push_back(inputs_table(diff));
    }
    return section;
}

}  // namespace orrery::reports
