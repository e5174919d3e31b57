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
    std::int64_t sum = 0;
    for (const DiffRow& row : rows) sum += row.before;
    const auto add = [&](SeriesRole role, std::int64_t from, std::int64_t change) {
        const std::int64_t low = std::min(from, from + change), high = std::max(from, from + change);
        const auto series = std::find_if(chart.series.begin(), chart.series.end(),
                                         [&](const ChartSeries& one) { return one.role == role; });
        series->points.push_back({.x = static_cast<double>(chart.x.categories.size() - 1),
                                  .y = static_cast<double>(change) / unit,
                                  .low = static_cast<double>(low) / unit,
                                  .high = static_cast<double>(high) / unit});
    };
    add(SeriesRole::total, 0, sum);
    for (const DiffRow& row : rows) {
        if (row.change() == 0) continue;
        chart.x.categories.push_back(part_label(row.what));
        add(row.change() > 0 ? SeriesRole::increase : SeriesRole::decrease, sum, row.change());
        sum += row.change();
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
    DiffRow sum{.what = "sum"};
    const auto add = [&](const std::string& what, const DiffRow& row) {
        const auto cell = [&](std::int64_t value) { return number_cell(static_cast<double>(value) / unit); };
        PageCell change = cell(row.change());
        if (row.change() > 0) change.text.insert(0, "+");
        table.rows.push_back({text_cell(what), cell(row.before), cell(row.after), change});
    };
    for (const DiffRow& row : rows) {
        add(part_label(row.what), row);
        sum.before += row.before;
        sum.after += row.after;
    }
    add(sum.what, sum);
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
