#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "reports/capacity_report.h"
#include "reports/page/sections.h"
#include "reports/plan_words.h"
#include "reports/table.h"

namespace orrery::reports {
namespace {

using program::Capacity;
using program::CapacityAnswer;
using program::CapacitySize;
using DateAfter = std::string (*)(const std::string& start, double days);

std::optional<double> days_of(const CapacitySize& size, double days) {
    return size.is_found() ? std::optional(days) : std::nullopt;
}

PageTable answers_table(const Capacity& capacity, DateAfter date_after) {
    const bool dated = !capacity.goal.start.empty();
    PageTable table{.title = "Smallest clusters",
                    .columns = {{"cluster", "", true},
                                {"meets the goal", "", true},
                                {"devices"},
                                {"used"},
                                {"plan", "", true},
                                {"step time", "s"},
                                {"goodput"},
                                {"p10", "days"},
                                {"p50", "days"},
                                {"p90", "days"},
                                {"cost", "USD"},
                                {"energy", "MWh"},
                                {"power", "MW"},
                                {"set by", "", true}},
                    .rows = {},
                    .row_kind = "clusters, best first"};
    if (dated) table.columns.insert(table.columns.begin() + 10, {"done (p50)", "", true});
    for (const CapacityAnswer& answer : capacity.answers) {
        const CapacitySize& size = answer.best;
        const bool found = size.is_found();
        std::vector<PageCell> row{
            text_cell(answer.cluster),
            text_cell(answer.meets ? "yes" : "no"),
            number_cell(found ? std::optional(static_cast<double>(size.devices)) : std::nullopt, NumberStyle::whole),
            number_cell(days_of(size, static_cast<double>(size.point.devices_used)), NumberStyle::whole),
            text_cell(found ? plan_words(size.point.plan) : size.reason),
            number_cell(days_of(size, size.point.step_time_s)),
            number_cell(days_of(size, size.goodput), NumberStyle::percent),
            number_cell(days_of(size, size.days_p10)),
            number_cell(days_of(size, size.days_p50)),
            number_cell(days_of(size, size.days_p90))};
        if (dated) row.push_back(text_cell(found ? date_after(capacity.goal.start, size.days_p50) : "-"));
        row.insert(row.end(), {number_cell(size.usd, NumberStyle::whole), number_cell(size.megawatt_hours),
                               number_cell(size.megawatts), text_cell(std::string(name_of(answer.limit)))});
        table.rows.push_back(std::move(row));
    }
    return table;
}

PageTable sizes_table(const Capacity& capacity) {
    PageTable table{.title = "Sizes looked at",
                    .columns = {{"cluster", "", true},
                                {"devices"},
                                {"spare"},
                                {"plan", "", true},
                                {"MFU"},
                                {"goodput"},
                                {"between interruptions", "h"},
                                {"without failures", "days"},
                                {"p10", "days"},
                                {"p50", "days"},
                                {"p90", "days"},
                                {"cost", "USD"},
                                {"energy", "MWh"}},
                    .rows = {},
                    .row_kind = "sizes"};
    for (const CapacityAnswer& answer : capacity.answers) {
        for (const CapacitySize& size : answer.explored) {
            const auto devices = number_cell(static_cast<double>(size.devices), NumberStyle::whole);
            const auto spare = number_cell(static_cast<double>(size.spare_devices), NumberStyle::whole);
            std::vector<PageCell> row{text_cell(answer.cluster), devices, spare};
            if (!size.is_found()) {
                row.push_back(text_cell(size.reason));
                row.resize(table.columns.size(), text_cell("-"));
            } else {
                row.insert(row.end(),
                           {text_cell(plan_words(size.point.plan)), number_cell(size.point.mfu, NumberStyle::percent),
                            number_cell(size.goodput, NumberStyle::percent),
                            number_cell(size.hours_between_interruptions), number_cell(size.days_ideal),
                            number_cell(size.days_p10), number_cell(size.days_p50), number_cell(size.days_p90),
                            number_cell(size.usd, NumberStyle::whole), number_cell(size.megawatt_hours)});
            }
            table.rows.push_back(std::move(row));
        }
    }
    return table;
}

/// Sizes may have been looked at with several numbers of spare devices; the charts show the fastest of them.
bool is_best_of_its_size(const CapacityAnswer& answer, const CapacitySize& size) {
    return std::none_of(answer.explored.begin(), answer.explored.end(), [&](const CapacitySize& other) {
        return other.is_found() && other.devices == size.devices &&
               (other.days_p50 < size.days_p50 || (other.days_p50 == size.days_p50 && &other < &size));
    });
}

template <typename Point>
std::vector<ChartSeries> series_of_answers(const Capacity& capacity, const Point& point_of) {
    std::vector<ChartSeries> all;
    for (const CapacityAnswer& answer : capacity.answers) {
        ChartSeries series{.name = answer.cluster, .points = {}};
        for (const CapacitySize& size : answer.explored) {
            if (!size.is_found()) continue;
            ChartPoint point = point_of(size);
            point.x = static_cast<double>(size.devices);
            if (point.y && is_best_of_its_size(answer, size)) series.points.push_back(point);
        }
        if (!series.points.empty()) all.push_back(std::move(series));
    }
    return all;
}

/// Over all numbers of devices that the other series have.
ChartSeries deadline_series(const Capacity& capacity, const std::vector<ChartSeries>& others) {
    std::set<double> sizes;
    for (const ChartSeries& series : others) {
        for (const ChartPoint& point : series.points) sizes.insert(point.x);
    }
    ChartSeries deadline{.name = "deadline", .role = SeriesRole::limit, .points = {}};
    for (const double size : sizes) deadline.points.push_back({.x = size, .y = capacity.goal.days});
    return deadline;
}

ChartAxis sizes_axis() {
    return {.measure = {"devices", "", NumberStyle::whole}, .scale = AxisScale::logarithmic, .categories = {}};
}

std::vector<Chart> capacity_charts(const Capacity& capacity) {
    std::vector<ChartSeries> days = series_of_answers(capacity, [](const CapacitySize& size) {
        return ChartPoint{.y = size.days_p50, .low = size.days_p10, .high = size.days_p90};
    });
    if (days.empty()) return {};
    days.push_back(deadline_series(capacity, days));
    std::vector<Chart> charts{
        {.title = "Days until the job is done",
         .kind = ChartKind::line,
         .x = sizes_axis(),
         .y = {.measure = {"time", "days"}, .scale = AxisScale::logarithmic, .categories = {}},
         .series = std::move(days),
         .caption = "Median, with failures and the number of spare devices that is fastest; the band runs from "
                    "p10 to p90.",
         .band = "p10 to p90",
         .low_name = "p10",
         .high_name = "p90"}};
    std::vector<ChartSeries> cost =
        series_of_answers(capacity, [](const CapacitySize& size) { return ChartPoint{.y = size.usd}; });
    if (!cost.empty()) {
        charts.push_back({.title = "Cost of the job",
                          .kind = ChartKind::line,
                          .x = sizes_axis(),
                          .y = {.measure = {"cost", "USD", NumberStyle::whole}, .categories = {}, .from_zero = true},
                          .series = std::move(cost),
                          .caption = "Of all devices, the spare ones too, for the median of the days."});
    }
    return charts;
}

std::vector<PageFact> answer_facts(const Capacity& capacity, DateAfter date_after) {
    const CapacityAnswer& first = capacity.answers.front();
    const CapacitySize& size = first.best;
    if (!size.is_found()) return {};
    const std::string& start = capacity.goal.start;
    const std::string done = start.empty() ? "" : "; done on " + date_after(start, size.days_p50);
    std::vector<PageFact> facts{
        {first.meets ? "Smallest cluster" : "Nearest cluster (misses the goal)",
         fmt::format("{} devices", format_integer(size.devices)),
         fmt::format("{}, {} of them spare", first.cluster, format_integer(size.devices - size.point.devices_used))},
        {"Time", number_text(size.days_p50, NumberStyle::plain) + " days",
         fmt::format("p10 {}, p90 {}{}", number_text(size.days_p10, NumberStyle::plain),
                     number_text(size.days_p90, NumberStyle::plain), done)},
        {"Goodput", format_percent(size.goodput),
         fmt::format("an interruption every {}\u00a0h",
                     number_text(size.hours_between_interruptions, NumberStyle::plain))}};
    if (size.usd) facts.push_back({"Cost", number_text(*size.usd, NumberStyle::whole) + " USD", ""});
    if (size.megawatt_hours && size.megawatts) {
        facts.push_back({"Energy", number_text(*size.megawatt_hours, NumberStyle::plain) + " MWh",
                         number_text(*size.megawatts, NumberStyle::plain) + " MW"});
    }
    return facts;
}

void add_figure(std::vector<FigureUsed>& used, const std::string& what, const char* unit,
                const std::optional<program::DatedFigure>& figure) {
    if (figure) used.push_back({what, unit, *figure});
}

}  // namespace

PageSection capacity_section(const Capacity& capacity, DateAfter date_after) {
    const program::CapacityGoal& goal = capacity.goal;
    PageSection section{
        .title = fmt::format("Capacity for {}", goal.model),
        .lead = fmt::format("{} tokens in {} days{}, met with a probability of {}; {} sequences of {} tokens a step.",
                            tokens_text(goal.tokens), number_text(goal.days, NumberStyle::exact),
                            goal.start.empty() ? "" : fmt::format(" ({} to {})", goal.start, goal.by),
                            format_percent(goal.probability, 0), format_integer(goal.global_batch_size),
                            format_integer(goal.sequence_length))};
    if (capacity.answers.empty()) return section;
    section.facts = answer_facts(capacity, date_after);
    section.charts = capacity_charts(capacity);
    section.tables = {answers_table(capacity, date_after), sizes_table(capacity)};
    section.notes = {
        "Days: with failures, checkpoints and repairs, over the interval of the predicted step time. Cost, "
        "energy and power: of all devices, for the median.",
        "Set by: what keeps the cluster from being smaller, or from meeting the goal."};
    return section;
}

std::vector<FigureUsed> figures_used(const program::CostFigures& figures, const std::string& of) {
    std::vector<FigureUsed> used;
    add_figure(used, "price of a device, " + of, "USD an hour", figures.usd_per_device_hour);
    add_figure(used, "power of a device, " + of, "W", figures.watts);
    add_figure(used, "power of a node beside its devices, " + of, "W", figures.node_watts);
    add_figure(used, "power of the site over that of the nodes, " + of, "", figures.pue);
    return used;
}

std::vector<FigureUsed> figures_used(const program::FaultFigures& figures) {
    std::vector<FigureUsed> used;
    add_figure(used, "device-hours per interruption", "h", figures.device_hours_per_interruption);
    add_figure(used, "interruptions after which a node is replaced", "share", figures.replaced_share);
    add_figure(used, "detection of a failure", "s", figures.detection_s);
    add_figure(used, "restart of the job", "s", figures.restart_s);
    add_figure(used, "repair of a node", "h", figures.repair_hours);
    add_figure(used, "checkpoints, written and read", "GB/s a node", figures.checkpoint_gb_per_s_per_node);
    add_figure(used, "checkpoint", "bytes a parameter", figures.checkpoint_bytes_per_parameter);
    return used;
}

}  // namespace orrery::reports
