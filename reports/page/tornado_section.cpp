#include <fmt/format.h>

#include <algorithm>

#include "reports/page/sections.h"
#include "reports/table.h"

namespace orrery::reports {
namespace {

using program::SweepPoint;
using program::Tornado;
using program::TornadoBar;

/// More bars than these are not drawn.
constexpr std::size_t kMostBars = 12;

/// Without the key above all of them.
std::string short_path(const std::string& path) {
    constexpr std::string_view kCluster = "cluster.";
    return path.starts_with(kCluster) ? path.substr(kCluster.size()) : path;
}

Chart tornado_chart(const Tornado& tornado, const std::vector<const TornadoBar*>& bars) {
    const std::string change = format_percent(tornado.change, 0);
    Chart chart{
        .title = "What the speed depends on",
        .kind = ChartKind::floating_bars,
        .x = {.measure = {"input"}, .scale = AxisScale::categories, .categories = {}},
        .y = {.measure = {"change of the speed", "", NumberStyle::signed_percent}, .categories = {}},
        .series = {{.name = "input -" + change, .role = SeriesRole::value, .points = {}},
                   {.name = "input +" + change, .role = SeriesRole::value, .points = {}}},
        .caption = fmt::format("Tokens a second beside the base, if one input alone is {} less or more.", change)};
    for (const TornadoBar* bar : bars) {
        const auto at = static_cast<double>(chart.x.categories.size());
        chart.x.categories.push_back(short_path(bar->path));
        const auto add = [&](ChartSeries& series, const SweepPoint& point) {
            ChartPoint& added = series.points.emplace_back();
            added.x = at;
            if (!point.point.is_found()) return;
            const double effect = point.speed - 1;
            added.y = effect;
            added.low = std::min(effect, 0.0);
            added.high = std::max(effect, 0.0);
        };
        add(chart.series[0], bar->less);
        add(chart.series[1], bar->more);
    }
    return chart;
}

PageTable tornado_table(const Tornado& tornado, const std::vector<const TornadoBar*>& bars) {
    const std::string change = format_percent(tornado.change, 0);
    PageTable table{.title = "Inputs that matter",
                    .columns = {{"input", "", true},
                                {"value", "", true},
                                {"elasticity of the step"},
                                {"speed at -" + change},
                                {"speed at +" + change}},
                    .rows = {},
                    .row_kind = "inputs"};
    const auto speed = [](const SweepPoint& point) {
        return number_cell(point.point.is_found() ? std::optional(point.speed) : std::nullopt, NumberStyle::percent);
    };
    for (const TornadoBar* bar : bars) {
        table.rows.push_back({text_cell(bar->path), text_cell(bar->value), number_cell(bar->elasticity),
                              speed(bar->less), speed(bar->more)});
    }
    return table;
}

}  // namespace

PageSection tornado_section(const Tornado& tornado) {
    std::vector<const TornadoBar*> bars;
    PageSection section{
        .title = "What matters for " + tornado.plan,
        .lead = fmt::format("{} on {}; {}.", tornado.model, tornado.cluster,
                            tornado.replans ? "each point has the best plan for its values" : "all have the same plan"),
        .facts = {{"Step with the values of the file", format_seconds(tornado.base.point.step_time_s), ""}}};
    for (const TornadoBar& bar : tornado.bars) {
        if (bar.matters()) bars.push_back(&bar);
        for (const SweepPoint* point : {&bar.less, &bar.more}) {
            if (!point->point.is_found()) section.notes.push_back(point->point.reason);
        }
    }
    if (!bars.empty()) {
        const TornadoBar& largest = *bars.front();
        section.facts.push_back(
            {"Largest effect", short_path(largest.path), fmt::format("{} of speed", format_percent(largest.effect()))});
        section.tables = {tornado_table(tornado, bars)};
        bars.resize(std::min(bars.size(), kMostBars));
        section.charts = {tornado_chart(tornado, bars)};
    }
    section.notes.push_back(
        fmt::format("The elasticity is the percentage by which the step lengthens for each percent of the input, {}.",
                    tornado.replans ? "between the two best plans" : "by the derivative of the simulation"));
    const std::size_t others = tornado.bars.size() - (section.tables.empty() ? 0 : section.tables.front().rows.size());
    if (others > 0) {
        section.notes.push_back(fmt::format("{} further input{} no effect.", others, others == 1 ? " has" : "s have"));
    }
    return section;
}

}  // namespace orrery::reports
