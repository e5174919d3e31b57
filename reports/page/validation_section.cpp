// Sections that show predictions beside measurements.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/units.h"
#include "reports/comparison.h"
#include "reports/error_summary.h"
#include "reports/page/sections.h"
#include "reports/table.h"
#include "reports/time_part.h"

namespace orrery::reports {
namespace {

constexpr double kLogarithmicFrom = 8;  // ratio of the largest to the smallest value

/// With the line on which predictions equal measurements.
Chart scatter_of(const std::string& title, const std::string& quantity, const std::string& unit,
                 std::vector<ChartSeries> series, const std::string& point_kind) {
    double low = 0, high = 0;
    for (const ChartSeries& one : series) {
        for (const ChartPoint& point : one.points) {
            const auto [least, most] = std::minmax(point.x, *point.y);
            low = high == 0 ? least : std::min(low, least);
            high = std::max(high, most);
        }
    }
    const AxisScale scale = low > 0 && high >= kLogarithmicFrom * low ? AxisScale::logarithmic : AxisScale::linear;
    series.push_back({.name = "predicted = measured",
                      .role = SeriesRole::ideal,
                      .points = {{.x = low, .y = low}, {.x = high, .y = high}}});
    return {.title = title,
            .kind = ChartKind::scatter,
            .x = {.measure = {"measured " + quantity, unit}, .scale = scale, .categories = {}},
            .y = {.measure = {"predicted " + quantity, unit}, .scale = scale, .categories = {}},
            .series = std::move(series),
            .caption = "Above the line, the prediction is too high.",
            .points = point_kind};
}

/// Plans that are judged, and others, by a quantity over all ranks.
std::vector<ChartSeries> compared_series(const ValidationFacts& validation, const std::string& quantity, double unit) {
    std::vector<ChartSeries> all{{.name = "judged", .points = {}},
                                 {.name = "not judged", .role = SeriesRole::secondary, .points = {}}};
    for (const ComparedPlan& plan : validation.comparisons) {
        for (const ComparedQuantity& row : plan.rows) {
            if (row.quantity != quantity || row.scope != kAllRanks || !row.stream.empty()) continue;
            all[plan.judged ? 0 : 1].points.push_back(
                {.x = row.measured / unit, .y = row.predicted / unit, .label = plan.plan_name});
        }
    }
    std::erase_if(all, [](const ChartSeries& series) { return series.points.empty(); });
    return all;
}

PageTable compared_table(const ValidationFacts& validation) {
    PageTable table{
        .title = "All quantities",
        .columns =
            {{"plan", "", true}, {"quantity", "", true}, {"of", "", true}, {"predicted"}, {"measured"}, {"error"}},
        .rows = {},
        .row_kind = "quantities"};
    for (const ComparedPlan& plan : validation.comparisons) {
        for (const ComparedQuantity& row : plan.rows) {
            table.rows.push_back({text_cell(plan.plan_name + (plan.judged ? "" : " (not judged)")),
                                  text_cell(row.quantity + (row.stream.empty() ? "" : ", " + row.stream)),
                                  text_cell(row.scope), number_cell(row.predicted), number_cell(row.measured),
                                  number_cell(row.error, NumberStyle::signed_percent)});
        }
    }
    return table;
}

Chart parts_chart(const ComparedPlan& plan) {
    Chart chart{.title = "Parts of the step: " + plan.plan_name,
                .kind = ChartKind::bars,
                .x = {.measure = {"part"}, .scale = AxisScale::categories, .categories = {}},
                .y = {.measure = {"time", "s"}, .categories = {}, .from_zero = true},
                .series = {{.name = "predicted", .points = {}}, {.name = "measured", .points = {}}},
                .caption = plan.strategy + ". Mean over the ranks; communication where no computation hides it."};
    for (const ComparedPart& part : plan.parts) {
        const auto place = static_cast<double>(chart.x.categories.size());
        chart.x.categories.push_back(part_label(part.part));
        chart.series[0].points.push_back({.x = place, .y = part.predicted_s});
        chart.series[1].points.push_back({.x = place, .y = part.measured_s});
    }
    return chart;
}

std::vector<PageCell> error_row(const std::string& name, const SourceErrors& errors) {
    std::vector<PageCell> row{text_cell(name)};
    for (const std::optional<ErrorFacts>& one : {errors.step_time, errors.peak_memory}) {
        row.push_back(
            number_cell(one ? std::optional(static_cast<double>(one->rows)) : std::nullopt, NumberStyle::whole));
        row.push_back(number_cell(one ? std::optional(one->median) : std::nullopt, NumberStyle::percent));
        row.push_back(number_cell(one ? std::optional(one->p90) : std::nullopt, NumberStyle::percent));
        row.push_back(number_cell(one ? std::optional(one->bias) : std::nullopt, NumberStyle::signed_percent));
    }
    return row;
}

PageTable sources_table(const PublishedFacts& published) {
    PageTable table{.title = "Errors by source",
                    .columns = {{"source", "", true},
                                {"step times"},
                                {"median error"},
                                {"p90"},
                                {"bias"},
                                {"memory peaks"},
                                {"median error of memory"},
                                {"p90"},
                                {"bias"}},
                    .rows = {error_row("all", published.summary.all)},
                    .row_kind = "sources"};
    for (const SourceErrors& source : published.summary.sources) {
        table.rows.push_back(error_row(source.source, source));
    }
    return table;
}

template <typename Value>
std::vector<ChartSeries> published_series(const PublishedFacts& published, const Value& values_of) {
    ChartSeries series{.name = "published run", .points = {}};
    for (const PublishedRun& run : published.rows) {
        const auto [predicted, measured] = values_of(run);
        if (!predicted || !measured) continue;
        series.points.push_back({.x = *measured, .y = *predicted, .label = run.id});
    }
    if (series.points.empty()) return {};
    return {std::move(series)};
}

std::vector<PageFact> error_facts(const SourceErrors& errors) {
    std::vector<PageFact> facts;
    const auto add = [&](const char* what, const std::optional<ErrorFacts>& error) {
        if (!error) return;
        facts.push_back({fmt::format("Median error of {}", what), format_percent(error->median),
                         fmt::format("of {} runs; p90 {}, bias {}", format_integer(error->rows),
                                     format_percent(error->p90), format_signed_percent(error->bias))});
    };
    add("step times", errors.step_time);
    add("peak memory", errors.peak_memory);
    return facts;
}

}  // namespace

PageSection validation_section(const ValidationFacts& validation) {
    PageSection section{.title = "Predicted and measured: plans that ran here",
                        .lead = "Each plan was predicted first, and then run."};
    std::vector<double> errors;
    for (const ComparedPlan& plan : validation.comparisons) {
        if (plan.judged && !plan.rows.empty() && plan.rows.front().error) {
            errors.push_back(std::abs(*plan.rows.front().error));
        }
        for (const std::string& note : plan.notes) {
            if (std::find(section.notes.begin(), section.notes.end(), note) == section.notes.end()) {
                section.notes.push_back(note);
            }
        }
    }
    if (!errors.empty()) {
        std::sort(errors.begin(), errors.end());
        section.facts = {
            {"Median error of the step time", format_percent(quantile(errors, 0.5)),
             fmt::format("plans judged: {}; largest error {}", errors.size(), format_percent(errors.back()))}};
    }
    auto steps = compared_series(validation, "step_time_s", 1);
    if (!steps.empty()) section.charts.push_back(scatter_of("Step time", "step time", "s", std::move(steps), "plan"));
    auto memory = compared_series(validation, "peak_memory_bytes", kGibibyte);
    if (!memory.empty()) {
        section.charts.push_back(scatter_of("Peak memory", "peak memory", "GiB", std::move(memory), "plan"));
    }
    for (const ComparedPlan& plan : validation.comparisons) {
        if (!plan.parts.empty()) section.charts.push_back(parts_chart(plan));
    }
    section.tables = {compared_table(validation)};
    section.notes.emplace_back("Not judged: plans with more ranks than the machine has cores, which take turns.");
    return section;
}

PageSection published_section(const PublishedFacts& published) {
    PageSection section{.title = "Predicted and measured: published runs",
                        .lead = "Runs that others published, made into plans and predicted.",
                        .facts = error_facts(published.summary.all)};
    auto steps = published_series(published, [](const PublishedRun& run) {
        return std::pair(run.predicted_step_time_s, run.measured_step_time_s);
    });
    if (!steps.empty()) section.charts.push_back(scatter_of("Step time", "step time", "s", std::move(steps), "run"));
    auto memory = published_series(published, [](const PublishedRun& run) {
        return std::pair(run.predicted_peak_memory_gib, run.measured_peak_memory_gib);
    });
    if (!memory.empty()) {
        section.charts.push_back(scatter_of("Peak memory", "peak memory", "GiB", std::move(memory), "run"));
    }
    section.tables = {sources_table(published)};
    section.notes = {
        "Error: predicted over measured, less 1; its median and p90 are of absolute errors, its bias is "
        "the mean with the sign."};
    return section;
}

}  // namespace orrery::reports
