#include <fmt/format.h>
#include <fmt/ranges.h>

#include "reports/page/sections.h"
#include "reports/table.h"

namespace orrery::reports {
namespace {

using program::ScalingPoint;
using program::TechniqueCurve;
using program::TechniqueCurves;
using program::TechniquePoint;

Chart technique_chart(const TechniqueCurves& curves, const Measure& measure, const std::string& caption,
                      double (*value)(const ScalingPoint&), double (*ideal)(const ScalingPoint&, double base)) {
    const bool is_speed_up = measure.style == NumberStyle::plain;
    Chart chart{
        .title = is_speed_up ? "Speed-up" : "Efficiency",
        .kind = ChartKind::line,
        .x = {.measure = {"devices", "", NumberStyle::whole}, .scale = AxisScale::logarithmic, .categories = {}},
        .y = {.measure = measure,
              .scale = is_speed_up ? AxisScale::logarithmic : AxisScale::linear,
              .categories = {},
              .from_zero = !is_speed_up},
        .series = {},
        .caption = caption};
    for (const TechniqueCurve& curve : curves.techniques) {
        ChartSeries& series = chart.series.emplace_back(ChartSeries{.name = std::string(name_of(curve.technique))});
        for (const TechniquePoint& one : curve.points) {
            ChartPoint& added = series.points.emplace_back();
            added.x = static_cast<double>(one.point.devices);
            if (one.point.is_found()) added.y = value(one.point);
        }
    }
    ChartSeries& best = chart.series.emplace_back(ChartSeries{.name = "ideal", .role = SeriesRole::ideal});
    for (const TechniquePoint& one : curves.techniques.front().points) {
        const auto devices = static_cast<double>(one.point.devices);
        best.points.push_back({.x = devices, .y = ideal(one.point, static_cast<double>(curves.base_devices))});
    }
    return chart;
}

PageTable pays_table(const TechniqueCurves& curves) {
    PageTable table{.title = "Where each stops paying",
                    .columns = {{"technique", "", true},
                                {"pays to", "devices"},
                                {"no plan on", "devices", true},
                                {"because of", "", true}},
                    .rows = {},
                    .row_kind = "techniques"};
    for (const TechniqueCurve& curve : curves.techniques) {
        std::vector<std::int64_t> missing;
        std::vector<std::string> reasons;
        for (const TechniquePoint& one : curve.points) {
            if (one.point.is_found()) continue;
            missing.push_back(one.point.devices);
            const std::string reason(name_of(one.obstacle));
            if (reasons.empty() || reasons.back() != reason) reasons.push_back(reason);
        }
        table.rows.push_back(
            {text_cell(std::string(name_of(curve.technique))),
             number_cell(curve.knee_devices > 0 ? std::optional<double>(curve.knee_devices) : std::nullopt,
                         NumberStyle::whole),
             text_cell(fmt::format("{}", fmt::join(missing, ", "))),
             text_cell(fmt::format("{}", fmt::join(reasons, ", ")))});
    }
    return table;
}

}  // namespace

PageSection technique_section(const TechniqueCurves& curves) {
    const bool is_weak = curves.mode == program::ScalingMode::weak;
    PageSection section{
        .title = fmt::format("Each technique alone: {} on {}", curves.model, curves.cluster),
        .lead = fmt::format(
            "{} scaling, {} sequences of {} tokens {}, implementation {}. Each point is the best plan of which "
            "only that technique's degree differs from 1.",
            is_weak ? "Weak" : "Strong", format_integer(curves.batch), format_integer(curves.sequence_length),
            is_weak ? "a device" : "a step", fmt::join(curves.implementations, ", "))};
    if (const ScalingPoint* const base = curves.base()) {
        section.facts = {{"1.00 is", format_seconds(base->step_time_s) + " a step",
                          fmt::format("the fastest plan on {} device{}", format_integer(curves.base_devices),
                                      curves.base_devices == 1 ? "" : "s")}};
        section.charts = {technique_chart(
                              curves, {"speed-up"}, "Tokens a second beside those of the plan of 1.00.",
                              [](const ScalingPoint& point) { return point.speed_up; },
                              [](const ScalingPoint& point, double base_devices) {
                                  return static_cast<double>(point.devices) / base_devices;
                              }),
                          technique_chart(
                              curves, {"efficiency", "", NumberStyle::percent}, "The speed-up beside the ideal one.",
                              [](const ScalingPoint& point) { return point.efficiency; },
                              [](const ScalingPoint&, double) { return 1.0; })};
    }
    section.tables = {pays_table(curves)};
    section.notes = {
        "A technique pays as far as the devices added last bring at least 50% of the tokens a second of as many "
        "devices of the plan of 1.00."};
    return section;
}

}  // namespace orrery::reports
