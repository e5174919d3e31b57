#include "reports/page/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/error.h"
#include "core/json_reader.h"
#include "reports/table.h"

namespace orrery::reports {
namespace {

std::string whole_number(double value) {
    constexpr double kLargestWritten = 1e15;
    return std::abs(value) < kLargestWritten ? format_integer(std::llround(value)) : fmt::format("{:.3e}", value);
}

/// Four significant digits, without an exponent; whole from 1,000 on.
std::string plain_number(double value) {
    constexpr double kGrouped = 1000;
    constexpr int kDigits = 4;
    if (value == 0) return "0";
    if (std::abs(value) >= kGrouped) return whole_number(value);
    const int before_point = static_cast<int>(std::floor(std::log10(std::abs(value)))) + 1;
    const int decimals = kDigits - before_point;
    if (decimals > kDigits + 3) return fmt::format("{:.3e}", value);
    return format_fixed(value, decimals);
}

/// The ends of floating bars are no interval.
bool has_interval(const Chart& chart, const ChartSeries& series) {
    return chart.kind != ChartKind::floating_bars &&
           std::any_of(series.points.begin(), series.points.end(),
                       [](const ChartPoint& point) { return point.low.has_value(); });
}

/// One row for each point.
PageTable scatter_table(const Chart& chart) {
    PageTable table{
        .title = chart.title, .columns = {{chart.points, "", true}}, .rows = {}, .row_kind = chart.points + "s"};
    const auto named = std::count_if(chart.series.begin(), chart.series.end(),
                                     [](const ChartSeries& one) { return one.role != SeriesRole::ideal; });
    if (named > 1) table.columns.push_back({"series", "", true});
    table.columns.push_back({chart.x.measure.name, chart.x.measure.unit});
    table.columns.push_back({chart.y.measure.name, chart.y.measure.unit});
    table.columns.push_back({"difference", ""});
    for (const ChartSeries& series : chart.series) {
        if (series.role == SeriesRole::ideal) continue;
        for (const ChartPoint& point : series.points) {
            std::vector<PageCell> row{text_cell(point.label)};
            if (named > 1) row.push_back(text_cell(series.name));
            row.push_back(number_cell(point.x, chart.x.measure.style));
            row.push_back(number_cell(point.y, chart.y.measure.style));
            const bool known = point.y && point.x > 0;
            row.push_back(known ? number_cell(*point.y / point.x - 1, NumberStyle::signed_percent) : text_cell("-"));
            table.rows.push_back(std::move(row));
        }
    }
    return table;
}

/// One row for each place on the axis, one column for each series, with two more for its intervals.
PageTable place_table(const Chart& chart) {
    const bool named = chart.x.scale == AxisScale::categories;
    PageTable table{.title = chart.title, .columns = {{chart.x.measure.name, chart.x.measure.unit, named}}, .rows = {}};
    std::set<double> places;
    for (const ChartSeries& series : chart.series) {
        const bool alone = chart.series.size() == 1;
        const std::string name = alone ? chart.y.measure.name : series.name;
        table.columns.push_back({name, chart.y.measure.unit});
        if (has_interval(chart, series)) {
            for (const std::string& end : {chart.low_name, chart.high_name}) {
                table.columns.push_back({(alone ? "" : name + ", ") + end, chart.y.measure.unit});
            }
        }
        for (const ChartPoint& point : series.points) places.insert(point.x);
    }
    for (const double place : places) {
        std::vector<PageCell> row{named ? text_cell(chart.x.categories.at(static_cast<std::size_t>(place)))
                                        : number_cell(place, chart.x.measure.style)};
        for (const ChartSeries& series : chart.series) {
            const auto found = std::find_if(series.points.begin(), series.points.end(),
                                            [&](const ChartPoint& point) { return point.x == place; });
            const ChartPoint point = found == series.points.end() ? ChartPoint{} : *found;
            row.push_back(number_cell(point.y, chart.y.measure.style));
            if (!has_interval(chart, series)) continue;
            row.push_back(number_cell(point.low, chart.y.measure.style));
            row.push_back(number_cell(point.high, chart.y.measure.style));
        }
        table.rows.push_back(std::move(row));
    }
    return table;
}

/// Bars that start where the bar before ends: one row each, with its change and where that leads.
PageTable waterfall_table(const Chart& chart) {
    PageTable table{.title = chart.title,
                    .columns = {{chart.x.measure.name, "", true},
                                {"change", chart.y.measure.unit},
                                {chart.y.measure.name, chart.y.measure.unit}},
                    .rows = {}};
    for (std::size_t i = 0; i < chart.x.categories.size(); ++i) {
        for (const ChartSeries& series : chart.series) {
            for (const ChartPoint& point : series.points) {
                if (point.x != static_cast<double>(i)) continue;
                const bool is_total = series.role == SeriesRole::total;
                const bool falls = series.role == SeriesRole::decrease;
                table.rows.push_back({text_cell(chart.x.categories[i]),
                                      is_total ? text_cell("") : number_cell(point.y, chart.y.measure.style),
                                      number_cell(falls ? point.low : point.high, chart.y.measure.style)});
            }
        }
    }
    return table;
}

bool is_waterfall(const Chart& chart) {
    return chart.kind == ChartKind::floating_bars &&
           std::any_of(chart.series.begin(), chart.series.end(),
                       [](const ChartSeries& series) { return series.role == SeriesRole::total; });
}

}  // namespace

std::string_view name_of(NumberStyle style) {
    static constexpr auto kNames =
        name_table<NumberStyle::signed_percent>({"plain", "exact", "whole", "percent", "signed_percent"});
    return kNames[style];
}

std::string_view name_of(ChartKind kind) {
    static constexpr auto kNames =
        name_table<ChartKind::floating_bars>({"line", "scatter", "bars", "stacked_bars", "floating_bars"});
    return kNames[kind];
}

std::string_view name_of(AxisScale scale) {
    static constexpr auto kNames = name_table<AxisScale::categories>({"linear", "logarithmic", "categories"});
    return kNames[scale];
}

std::string_view name_of(SeriesRole role) {
    static constexpr auto kNames =
        name_table<SeriesRole::secondary>({"value", "ideal", "limit", "total", "increase", "decrease", "secondary"});
    return kNames[role];
}

std::string Measure::title() const {
    return unit.empty() ? name : name + " (" + unit + ")";
}

std::string number_text(double value, NumberStyle style) {
    switch (style) {
        case NumberStyle::plain:
            return plain_number(value);
        case NumberStyle::exact:
            return shortest(value);
        case NumberStyle::whole:
            return whole_number(value);
        case NumberStyle::percent:
            return format_percent(value);
        case NumberStyle::signed_percent:
            return format_signed_percent(value);
    }
    return "";
}

PageCell text_cell(std::string text) {
    return {std::move(text), {}};
}

PageCell number_cell(const std::optional<double>& value, NumberStyle style) {
    return {value ? number_text(*value, style) : "-", value};
}

PageTable table_of(const Chart& chart) {
    if (chart.kind == ChartKind::scatter) return scatter_table(chart);
    if (is_waterfall(chart)) return waterfall_table(chart);
    return place_table(chart);
}

}  // namespace orrery::reports
