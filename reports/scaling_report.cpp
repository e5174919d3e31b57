#include "reports/scaling_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/csv.h"
#include "core/json_reader.h"
#include "reports/plan_words.h"
#include "reports/table.h"

namespace orrery::reports {
namespace {

using program::ScalingCurve;
using program::ScalingPoint;

/// Half-width on the logarithmic scale.
std::string spread_text(const ScalingPoint& point) {
    if (point.step_time_high_s <= 0) return "-";
    return "±" + format_percent(std::sqrt(point.step_time_high_s / point.step_time_low_s) - 1);
}

/// The largest share of what is neither computation nor memory bandwidth: what scaling costs.
std::string overhead_text(const ScalingPoint& point) {
    for (const program::LimitShare& one : point.shares) {
        if (one.limit == program::Limit::compute || one.limit == program::Limit::memory_bandwidth) continue;
        return share_words(one);
    }
    return "-";
}

bool has_spares(const ScalingCurve& curve) {
    return std::any_of(curve.points.begin(), curve.points.end(), [](const ScalingPoint& point) {
        return point.is_found() && point.devices_used < point.devices;
    });
}

Table table_of(const ScalingCurve& curve) {
    const bool spares = has_spares(curve);
    std::vector<Column> columns{{"devices"}};
    if (spares) columns.push_back({"used"});
    columns.insert(columns.end(), {{"batch"},
                                   {"plan", Align::left},
                                   {"step time"},
                                   {"90%"},
                                   {"tokens/s"},
                                   {"speed-up"},
                                   {"efficiency"},
                                   {"marginal"},
                                   {"MFU"},
                                   {"exposed comm."},
                                   {"bubble"},
                                   {"peak GiB"},
                                   {"limited by", Align::left},
                                   {"largest overhead", Align::left}});
    if (curve.figures.usd_per_device_hour) columns.push_back({"$/G tokens"});
    if (curve.figures.watts) columns.push_back({"kWh/G tokens"});
    Table table(columns);
    for (const ScalingPoint& point : curve.points) {
        if (!point.is_found()) continue;
        std::vector<std::string> cells{format_integer(point.devices)};
        if (spares) cells.push_back(format_integer(point.devices_used));
        cells.insert(
            cells.end(),
            {format_integer(point.global_batch_size), plan_words(point.plan), format_seconds(point.step_time_s),
             spread_text(point), format_integer(std::llround(point.tokens_per_s)), format_fixed(point.speed_up, 2),
             format_percent(point.efficiency), format_percent(point.marginal_efficiency), format_percent(point.mfu),
             format_percent(point.exposed_communication_s / point.step_time_s), format_percent(point.bubble_fraction),
             format_fixed(point.peak_memory_gib, 1), limit_words(point), overhead_text(point)});
        if (curve.figures.usd_per_device_hour) cells.push_back(amount_text(point.usd_per_billion_tokens));
        if (curve.figures.watts) cells.push_back(amount_text(point.kwh_per_billion_tokens));
        table.add_row(cells);
    }
    return table;
}

std::string knee_text(const ScalingCurve& curve) {
    if (curve.knee_devices == 0) return "";
    const ScalingPoint* last = nullptr;
    for (const ScalingPoint& point : curve.points) {
        if (point.is_found()) last = &point;
    }
    const std::string share = format_percent(program::kKneeEfficiency, 0);
    if (last->devices == curve.knee_devices) {
        return fmt::format(
            "knee: none up to {} devices; devices added last still bring at least {} of what those of "
            "the first point bring\n",
            format_integer(last->devices), share);
    }
    return fmt::format(
        "knee: {} devices, the last point whose added devices bring at least {} of what those of the "
        "first point bring\n",
        format_integer(curve.knee_devices), share);
}

std::string figure_text(const char* what, const std::optional<program::DatedFigure>& figure) {
    if (!figure) return "";
    return fmt::format("{} {} ({})\n", shortest(figure->value), what, origin_words(*figure));
}

std::string number(const std::optional<double>& value) {
    return value ? shortest(*value) : "";
}

}  // namespace

std::string cost_figures_text(const program::CostFigures& figures) {
    return figure_text("USD a device-hour", figures.usd_per_device_hour) + figure_text("W a device", figures.watts) +
           figure_text("W a node beside its devices", figures.node_watts) +
           figure_text("times the nodes' power for the site", figures.pue);
}

std::string amount_text(const std::optional<double>& amount) {
    if (!amount) return "-";
    return *amount < 100 ? format_fixed(*amount, 2) : format_integer(std::llround(*amount));
}

std::string scaling_text(const ScalingCurve& curve) {
    std::string text = table_of(curve).to_text();
    for (const ScalingPoint& point : curve.points) {
        if (!point.is_found()) text += fmt::format("{} devices: {}\n", format_integer(point.devices), point.reason);
    }
    text += knee_text(curve);
    text +=
        "speed-up and efficiency: tokens/s beside the first point's, in all and for each device; marginal: the same "
        "for the devices added since the point before\n";
    text += "largest overhead: the largest share of the step that is neither computation nor memory bandwidth\n";
    return text + cost_figures_text(curve.figures);
}

std::string scaling_csv_row(const ScalingPoint& p) {
    if (!p.is_found()) {
        return fmt::format("{},,{},,,,,,,,,,,,,,,,,,,{}", p.devices, p.global_batch_size, csv_field(p.reason));
    }
    const auto known = [](double value) { return value > 0 ? shortest(value) : ""; };
    return fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},", p.devices, p.devices_used,
                       p.global_batch_size, csv_field(p.plan.implementation), csv_field(plan_words(p.plan)),
                       shortest(p.step_time_s), known(p.step_time_low_s), known(p.step_time_high_s),
                       shortest(p.tokens_per_s), shortest(p.speed_up), shortest(p.efficiency),
                       shortest(p.marginal_efficiency), shortest(p.mfu), shortest(p.hfu), shortest(p.peak_memory_gib),
                       shortest(p.exposed_communication_s), shortest(p.bubble_fraction), shortest(p.idle_fraction),
                       p.shares.empty() ? "" : std::string(name_of(p.shares.front().limit)),
                       number(p.usd_per_billion_tokens), number(p.kwh_per_billion_tokens));
}

std::string scaling_csv(const ScalingCurve& curve) {
    std::string text = fmt::format("{}\n", kScalingColumns);
    for (const ScalingPoint& point : curve.points) text += scaling_csv_row(point) + "\n";
    return text;
}

}  // namespace orrery::reports
