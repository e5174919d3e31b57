#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "reports/page/sections.h"
#include "reports/plan_words.h"
#include "reports/table.h"

namespace orrery::reports {
namespace {

using program::Limit;
using program::ScalingCurve;
using program::ScalingPoint;

constexpr const char* kStepBand = "90% interval";
const Measure kDevices{"devices", "", NumberStyle::whole};

std::vector<const ScalingPoint*> points_found(const ScalingCurve& curve) {
    std::vector<const ScalingPoint*> found;
    for (const ScalingPoint& point : curve.points) {
        if (point.is_found()) found.push_back(&point);
    }
    return found;
}

/// A series of a quantity that is proportional to the speed, with the interval of the step time.
template <typename Value>
ChartSeries speed_series(const std::string& name, const ScalingCurve& curve, const Value& value_of) {
    ChartSeries series{.name = name, .points = {}};
    for (const ScalingPoint* point : points_found(curve)) {
        ChartPoint shown{.x = static_cast<double>(point->devices), .y = value_of(*point)};
        if (shown.y && point->step_time_low_s > 0 && point->step_time_high_s > 0) {
            shown.low = *shown.y * point->step_time_s / point->step_time_high_s;
            shown.high = *shown.y * point->step_time_s / point->step_time_low_s;
        }
        series.points.push_back(shown);
    }
    return series;
}

template <typename Value>
ChartSeries plain_series(const std::string& name, const ScalingCurve& curve, const Value& value_of) {
    ChartSeries series = speed_series(name, curve, value_of);
    for (ChartPoint& point : series.points) point.low = point.high = std::nullopt;
    return series;
}

double efficiency_of(const ScalingPoint& point) {
    return point.efficiency;
}
double throughput_of(const ScalingPoint& point) {
    return point.tokens_per_s;
}

/// What each device of the first point gives, times the devices.
ChartSeries ideal_throughput(const ScalingCurve& curve) {
    const std::vector<const ScalingPoint*> found = points_found(curve);
    ChartSeries series{.name = "ideal", .role = SeriesRole::ideal, .points = {}};
    const double each = found.front()->tokens_per_s / static_cast<double>(found.front()->devices_used);
    for (const ScalingPoint* point : found) {
        const auto devices = static_cast<double>(point->devices);
        series.points.push_back({.x = devices, .y = each * devices});
    }
    return series;
}

ChartSeries ideal_efficiency(const std::vector<const ScalingCurve*>& curves) {
    std::set<std::int64_t> devices;
    for (const ScalingCurve* curve : curves) {
        for (const ScalingPoint* point : points_found(*curve)) devices.insert(point->devices);
    }
    ChartSeries series{.name = "ideal", .role = SeriesRole::ideal, .points = {}};
    for (const std::int64_t one : devices) series.points.push_back({.x = static_cast<double>(one), .y = 1});
    return series;
}

ChartAxis devices_axis() {
    return {.measure = kDevices, .scale = AxisScale::logarithmic, .categories = {}};
}

Chart efficiency_chart(std::vector<ChartSeries> series) {
    return {.title = "Scaling efficiency",
            .kind = ChartKind::line,
            .x = devices_axis(),
            .y = {.measure = {"efficiency", "", NumberStyle::percent}, .categories = {}},
            .series = std::move(series),
            .caption =
                "Tokens a second for each device, beside those of the first point. The band is the 90% interval "
                "of a point's own step time; errors that all points share leave the efficiency as it is.",
            .band = kStepBand};
}

Chart throughput_chart(std::vector<ChartSeries> series) {
    return {.title = "Throughput",
            .kind = ChartKind::line,
            .x = devices_axis(),
            .y = {.measure = {"throughput", "tokens/s", NumberStyle::whole},
                  .scale = AxisScale::logarithmic,
                  .categories = {}},
            .series = std::move(series),
            .caption = "Tokens a second of all devices, with the 90% interval of the predicted step time.",
            .band = kStepBand};
}

std::vector<std::string> device_names(const ScalingCurve& curve) {
    std::vector<std::string> names;
    for (const ScalingPoint* point : points_found(curve)) names.push_back(format_integer(point->devices));
    return names;
}

/// One series for each kind of work that any point spends time on, in the order of the kinds.
std::vector<ChartSeries> share_series(const ScalingCurve& curve, bool in_seconds) {
    std::vector<ChartSeries> all;
    const std::vector<const ScalingPoint*> found = points_found(curve);
    for (const Limit limit : enum_values<Limit, program::kLimitCount>()) {
        ChartSeries series{.name = limit_name(limit), .points = {}};
        for (std::size_t i = 0; i < found.size(); ++i) {
            for (const program::LimitShare& one : found[i]->shares) {
                if (one.limit != limit) continue;
                const double value = in_seconds ? one.share * found[i]->step_time_s : one.share;
                series.points.push_back({.x = static_cast<double>(i), .y = value});
            }
        }
        if (!series.points.empty()) all.push_back(std::move(series));
    }
    return all;
}

Chart shares_chart(const ScalingCurve& curve, bool in_seconds) {
    Chart chart{.title = in_seconds ? "Time of a step" : "Shares of a step",
                .kind = ChartKind::stacked_bars,
                .x = {.measure = kDevices, .scale = AxisScale::categories, .categories = device_names(curve)},
                .y = {.measure = in_seconds ? Measure{"time", "s"} : Measure{"share", "", NumberStyle::percent},
                      .categories = {},
                      .from_zero = true},
                .series = share_series(curve, in_seconds),
                .caption = in_seconds ? "The step time, by what it is spent on; communication only where no "
                                        "computation hides it."
                                      : "The same, as shares of each point's step."};
    return chart;
}

bool has_shares(const ScalingCurve& curve) {
    return std::any_of(curve.points.begin(), curve.points.end(),
                       [](const ScalingPoint& point) { return !point.shares.empty(); });
}

Chart one_line(const ScalingCurve& curve, const std::string& title, Measure measure, const std::string& caption,
               ChartSeries series) {
    series.name = curve.cluster;
    return {.title = title,
            .kind = ChartKind::line,
            .x = devices_axis(),
            .y = {.measure = std::move(measure), .categories = {}, .from_zero = true},
            .series = {std::move(series)},
            .caption = caption};
}

Chart memory_chart(const ScalingCurve& curve) {
    return one_line(curve, "Peak memory", {"peak memory", "GiB"}, "In use on the fullest device.",
                    plain_series("", curve, [](const ScalingPoint& point) { return point.peak_memory_gib; }));
}

void add_costs(const ScalingCurve& curve, PageSection& section) {
    if (curve.figures.usd_per_device_hour) {
        section.charts.push_back(one_line(
            curve, "Cost of a billion tokens", {"cost", "USD"}, "Of all devices that the job has, also idle ones.",
            plain_series("", curve, [](const ScalingPoint& point) { return point.usd_per_billion_tokens; })));
    }
    if (curve.figures.watts) {
        section.charts.push_back(
            one_line(curve, "Energy of a billion tokens", {"energy", "kWh"},
                     "Each device draws its power under load all the time.",
                     plain_series("", curve, [](const ScalingPoint& point) { return point.kwh_per_billion_tokens; })));
    }
}

PageTable points_table(const ScalingCurve& curve) {
    PageTable table{.title = "Best plan of each point",
                    .columns = {{"devices"},
                                {"plan", "", true},
                                {"step time", "s"},
                                {"90% from", "s"},
                                {"to", "s"},
                                {"tokens/s"},
                                {"speed-up"},
                                {"efficiency"},
                                {"of added devices"},
                                {"MFU"},
                                {"bubble"},
                                {"peak memory", "GiB"},
                                {"largest share", "", true}},
                    .rows = {},
                    .row_kind = "points"};
    const auto known = [](double value) { return value > 0 ? std::optional(value) : std::nullopt; };
    const auto whole = [](auto value) { return number_cell(static_cast<double>(value), NumberStyle::whole); };
    for (const ScalingPoint* point : points_found(curve)) {
        table.rows.push_back(
            {whole(point->devices), text_cell(point->plan.implementation + ": " + plan_words(point->plan)),
             number_cell(point->step_time_s), number_cell(known(point->step_time_low_s)),
             number_cell(known(point->step_time_high_s)), whole(point->tokens_per_s), number_cell(point->speed_up),
             number_cell(point->efficiency, NumberStyle::percent),
             number_cell(point->marginal_efficiency, NumberStyle::percent),
             number_cell(point->mfu, NumberStyle::percent), number_cell(point->bubble_fraction, NumberStyle::percent),
             number_cell(point->peak_memory_gib), text_cell(limit_words(*point))});
    }
    return table;
}

std::string job_words(const ScalingCurve& curve) {
    return curve.mode == program::ScalingMode::weak
               ? fmt::format("Weak scaling, {} sequences of {} tokens a step for each device",
                             format_integer(curve.batch), format_integer(curve.sequence_length))
               : fmt::format("Strong scaling, {} sequences of {} tokens a step", format_integer(curve.batch),
                             format_integer(curve.sequence_length));
}

std::vector<PageFact> scaling_facts(const ScalingCurve& curve) {
    const std::vector<const ScalingPoint*> found = points_found(curve);
    const ScalingPoint& last = *found.back();
    std::vector<PageFact> facts{
        {fmt::format("Efficiency on {} devices", format_integer(last.devices)), format_percent(last.efficiency),
         fmt::format("{} times as fast as on {}", format_fixed(last.speed_up, 1),
                     format_integer(found.front()->devices))},
        {fmt::format("Step on {} devices", format_integer(last.devices)), format_seconds(last.step_time_s),
         last.step_time_high_s > 0
             ? fmt::format("90%: {} to {}", format_seconds(last.step_time_low_s), format_seconds(last.step_time_high_s))
             : ""}};
    const std::string knee_note = fmt::format("the last point whose added devices bring at least {} of the first's",
                                              format_percent(program::kKneeEfficiency, 0));
    facts.push_back(last.devices == curve.knee_devices
                        ? PageFact{"Knee", fmt::format("beyond {}", format_integer(last.devices)),
                                   fmt::format("the devices added last still bring at least {} of the first's",
                                               format_percent(program::kKneeEfficiency, 0))}
                        : PageFact{"Knee", format_integer(curve.knee_devices) + " devices", knee_note});
    const auto cheaper = [](const ScalingPoint* a, const ScalingPoint* b) {
        return a->usd_per_billion_tokens.value_or(0) < b->usd_per_billion_tokens.value_or(0);
    };
    const ScalingPoint& cheapest = **std::min_element(found.begin(), found.end(), cheaper);
    if (cheapest.usd_per_billion_tokens) {
        facts.push_back({"Cheapest billion tokens",
                         number_text(*cheapest.usd_per_billion_tokens, NumberStyle::plain) + " USD",
                         fmt::format("on {} devices", format_integer(cheapest.devices))});
    }
    return facts;
}

std::string curve_name(const ScalingCurve& curve, const std::vector<ScalingCurve>& among) {
    const auto alike = std::count_if(among.begin(), among.end(),
                                     [&](const ScalingCurve& other) { return other.cluster == curve.cluster; });
    if (alike == 1) return curve.cluster;
    return fmt::format("{}, {}{}", curve.cluster, fmt::join(curve.implementations, "+"),
                       curve.is_fixed_plan ? ", one plan" : "");
}

}  // namespace

PageSection scaling_section(const ScalingCurve& curve) {
    PageSection section{
        .title = fmt::format("Scaling of {} on {}", curve.model, curve.cluster),
        .lead = fmt::format("{}. {} {}.", job_words(curve),
                            curve.is_fixed_plan ? "All points have the plan of the first, with more replicas; it is of"
                                                : "Each point has the best plan of",
                            fmt::join(curve.implementations, " or "))};
    for (const ScalingPoint& point : curve.points) {
        if (!point.is_found()) {
            section.notes.push_back(
                fmt::format("No plan on {} devices: {}", format_integer(point.devices), point.reason));
        }
    }
    if (points_found(curve).empty()) return section;
    section.facts = scaling_facts(curve);
    section.charts = {efficiency_chart({speed_series(curve.cluster, curve, efficiency_of), ideal_efficiency({&curve})}),
                      throughput_chart({speed_series(curve.cluster, curve, throughput_of), ideal_throughput(curve)})};
    if (has_shares(curve)) {
        section.charts.push_back(shares_chart(curve, true));
        section.charts.push_back(shares_chart(curve, false));
    }
    add_costs(curve, section);
    section.charts.push_back(memory_chart(curve));
    section.tables = {points_table(curve)};
    section.notes.insert(section.notes.begin(),
                         {"Of added devices: the tokens/s that the devices added since the point before bring, beside "
                          "those of as many devices of the first point.",
                          "MFU: FLOPs of the model over the peak of the devices."});
    return section;
}

bool are_of_one_job(const ScalingCurve& a, const ScalingCurve& b) {
    return a.model == b.model && a.mode == b.mode && a.batch == b.batch && a.sequence_length == b.sequence_length;
}

PageSection scaling_comparison(const std::vector<ScalingCurve>& curves) {
    std::vector<ChartSeries> efficiency, throughput, cost;
    std::vector<const ScalingCurve*> compared;
    bool priced = true;
    for (const ScalingCurve& curve : curves) {
        if (points_found(curve).empty()) continue;
        const std::string name = curve_name(curve, curves);
        compared.push_back(&curve);
        efficiency.push_back(speed_series(name, curve, efficiency_of));
        throughput.push_back(speed_series(name, curve, throughput_of));
        cost.push_back(
            plain_series(name, curve, [](const ScalingPoint& point) { return point.usd_per_billion_tokens; }));
        priced = priced && curve.figures.usd_per_device_hour.has_value();
    }
    PageSection section{.title = fmt::format("Scaling of {}: {} curves", curves.front().model, curves.size()),
                        .lead = "The same job on each; what follows has each curve by itself."};
    if (compared.empty()) return section;
    efficiency.push_back(ideal_efficiency(compared));
    section.charts = {efficiency_chart(std::move(efficiency)), throughput_chart(std::move(throughput))};
    if (priced) {
        section.charts.push_back({.title = "Cost of a billion tokens",
                                  .kind = ChartKind::line,
                                  .x = devices_axis(),
                                  .y = {.measure = {"cost", "USD"}, .categories = {}, .from_zero = true},
                                  .series = std::move(cost),
                                  .caption = "Of all devices that the job has, at the prices listed below."});
    }
    section.notes = {
        "Efficiency is beside each curve's own first point: it compares how well clusters scale, not how "
        "fast they are."};
    return section;
}

}  // namespace orrery::reports
