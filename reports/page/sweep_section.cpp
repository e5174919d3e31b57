#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "reports/page/sections.h"
#include "reports/plan_words.h"
#include "reports/table.h"

namespace orrery::reports {
namespace {

using program::InputSweep;
using program::SweepPoint;

/// More lines than these cannot be told apart.
constexpr std::size_t kMostLines = 8;
/// From this ratio of the largest to the smallest value on, an axis is logarithmic.
constexpr double kWideAxis = 8;

/// A number, or a factor such as "0.5x".
std::optional<double> number_of(const std::string& value, bool is_factor) {
    if (value.ends_with('x') != is_factor) return {};
    double number = 0;
    const char* const end = value.data() + value.size() - (is_factor ? 1 : 0);
    const auto [stopped, error] = std::from_chars(value.data(), end, number);
    if (error != std::errc() || stopped != end || !std::isfinite(number)) return {};
    return number;
}

/// The input on the axis, its values, and the other inputs as series.
struct SweepAxes {
    std::size_t path = 0;
    bool is_number = false, is_factor = false;
    std::vector<std::string> values;                              // in the order given
    std::vector<std::string> names;                               // of the series
    std::vector<std::vector<std::optional<SweepPoint>>> by_name;  // by series, by value

    [[nodiscard]] double place(std::size_t i) const {
        return is_number ? *number_of(values[i], is_factor) : static_cast<double>(i);
    }
};

std::vector<std::string> distinct_values(const InputSweep& sweep, std::size_t path) {
    std::vector<std::string> values;
    for (const SweepPoint& point : sweep.points) {
        const std::string& value = point.values.at(path);
        if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
    }
    return values;
}

bool are_numbers(const std::vector<std::string>& values, bool is_factor) {
    return std::all_of(values.begin(), values.end(),
                       [&](const std::string& value) { return number_of(value, is_factor).has_value(); });
}

/// The last key of a path.
std::string last_key(const std::string& path) {
    return path.substr(path.rfind('.') + 1);
}

/// The values of all inputs but that on the axis: "micro_batch_size 2".
std::string series_name(const InputSweep& sweep, const SweepPoint& point, std::size_t axis) {
    std::string name;
    for (std::size_t i = 0; i < sweep.paths.size(); ++i) {
        if (i == axis) continue;
        name += (name.empty() ? "" : ", ") + last_key(sweep.paths[i]) + " " + point.values.at(i);
    }
    return name.empty() ? last_key(sweep.paths[axis]) : name;
}

SweepAxes axes_of(const InputSweep& sweep) {
    SweepAxes axes;
    for (std::size_t i = 0; i < sweep.paths.size(); ++i) {
        std::vector<std::string> values = distinct_values(sweep, i);
        const bool factor = are_numbers(values, true), number = factor || are_numbers(values, false);
        const bool better =
            i == 0 || (number && !axes.is_number) || (number == axes.is_number && values.size() > axes.values.size());
        if (!better) continue;
        axes.path = i;
        axes.is_number = number;
        axes.is_factor = factor;
        axes.values = std::move(values);
    }
    if (axes.is_number) {
        std::sort(axes.values.begin(), axes.values.end(), [&](const std::string& a, const std::string& b) {
            return *number_of(a, axes.is_factor) < *number_of(b, axes.is_factor);
        });
    }
    for (const SweepPoint& point : sweep.points) {
        const std::string name = series_name(sweep, point, axes.path);
        const auto known = std::find(axes.names.begin(), axes.names.end(), name);
        const auto series = static_cast<std::size_t>(known - axes.names.begin());
        if (known == axes.names.end()) {
            axes.names.push_back(name);
            axes.by_name.emplace_back(axes.values.size());
        }
        const auto value = std::find(axes.values.begin(), axes.values.end(), point.values.at(axes.path));
        axes.by_name[series][static_cast<std::size_t>(value - axes.values.begin())] = point;
    }
    return axes;
}

ChartAxis axis_of(const InputSweep& sweep, const SweepAxes& axes) {
    ChartAxis axis{.measure = {last_key(sweep.paths[axes.path]), axes.is_factor ? "times the plan file's" : "",
                               NumberStyle::exact},
                   .categories = {}};
    if (!axes.is_number) {
        axis.scale = AxisScale::categories;
        axis.categories = axes.values;
    } else if (axes.place(0) > 0 && axes.place(axes.values.size() - 1) >= kWideAxis * axes.place(0)) {
        axis.scale = AxisScale::logarithmic;
    }
    return axis;
}

struct SweepQuantity {
    const char* title;
    Measure measure;
    const char* caption;
    double (*value)(const SweepPoint&);
    bool has_band = false;
};

Chart sweep_chart(const InputSweep& sweep, const SweepAxes& axes, const SweepQuantity& quantity) {
    Chart chart{.title = quantity.title,
                .kind = axes.is_number ? ChartKind::line : ChartKind::bars,
                .x = axis_of(sweep, axes),
                .y = {.measure = quantity.measure, .categories = {}, .from_zero = !axes.is_number},
                .series = {},
                .caption = quantity.caption,
                .band = quantity.has_band && axes.is_number ? "90% interval" : ""};
    for (std::size_t k = 0; k < std::min(axes.names.size(), kMostLines); ++k) {
        ChartSeries series{.name = axes.names[k], .points = {}};
        for (std::size_t i = 0; i < axes.values.size(); ++i) {
            const std::optional<SweepPoint>& one = axes.by_name[k][i];
            if (!one || !one->point.is_found()) continue;
            ChartPoint point{.x = axes.place(i), .y = quantity.value(*one)};
            if (!chart.band.empty() && one->point.step_time_low_s > 0) {
                point.low = one->point.step_time_low_s;
                point.high = one->point.step_time_high_s;
            }
            series.points.push_back(point);
        }
        chart.series.push_back(std::move(series));
    }
    return chart;
}

/// Where the lines cross, by the values given on both sides.
std::vector<std::string> crossings(const InputSweep& sweep, const SweepAxes& axes) {
    std::vector<std::string> notes;
    const std::size_t lines = std::min(axes.names.size(), kMostLines);
    const std::string key = last_key(sweep.paths[axes.path]);
    for (std::size_t a = 0; a < lines; ++a) {
        for (std::size_t b = a + 1; b < lines; ++b) {
            std::optional<std::size_t> before;
            double ahead = 0;
            for (std::size_t i = 0; i < axes.values.size(); ++i) {
                const auto &one = axes.by_name[a][i], &other = axes.by_name[b][i];
                if (!one || !other || !one->point.is_found() || !other->point.is_found()) continue;
                const double now = one->speed - other->speed;
                if (now == 0) continue;
                if (before && (now > 0) != (ahead > 0)) {
                    notes.push_back(fmt::format("Between {0} {1} and {2}, {3} becomes faster than {4}.", key,
                                                axes.values[*before], axes.values[i], axes.names[now > 0 ? a : b],
                                                axes.names[now > 0 ? b : a]));
                }
                before = i;
                ahead = now;
            }
        }
    }
    return notes;
}

/// Where another plan becomes the best one.
std::vector<std::string> plan_changes(const InputSweep& sweep, const SweepAxes& axes) {
    std::vector<std::string> notes;
    for (std::size_t k = 0; k < std::min(axes.names.size(), kMostLines); ++k) {
        const SweepPoint* before = nullptr;
        for (const std::optional<SweepPoint>& one : axes.by_name[k]) {
            if (!one || !one->point.is_found()) continue;
            const std::string now = plan_words(one->point.plan);
            if (before != nullptr && plan_words(before->point.plan) != now) {
                notes.push_back(fmt::format("Between {} {} and {}{} the best plan changes from {} to {}.",
                                            last_key(sweep.paths[axes.path]), before->values[axes.path],
                                            one->values[axes.path], axes.names.size() > 1 ? ", " + axes.names[k] : "",
                                            plan_words(before->point.plan), now));
            }
            before = &*one;
        }
    }
    return notes;
}

PageTable sweep_table(const InputSweep& sweep) {
    PageTable table{.title = "All points", .columns = {}, .rows = {}, .row_kind = "points"};
    for (const std::string& path : sweep.paths) table.columns.push_back({path, "", true});
    table.columns.insert(table.columns.end(), {{"plan", "", true},
                                               {"step time", "s"},
                                               {"tokens/s"},
                                               {"speed"},
                                               {"MFU"},
                                               {"exposed communication", "s"},
                                               {"bubble"},
                                               {"peak memory", "GiB"},
                                               {"fits", "", true},
                                               {"largest share", "", true}});
    const auto add = [&](const SweepPoint& one, const std::vector<std::string>& values, const char* suffix) {
        std::vector<PageCell> row;
        for (const std::string& value : values) row.push_back(text_cell(value + suffix));
        const program::ScalingPoint& point = one.point;
        if (!point.is_found()) {
            row.push_back(text_cell(point.reason));
            row.resize(table.columns.size(), text_cell("-"));
        } else {
            row.insert(
                row.end(),
                {text_cell(plan_words(point.plan)), number_cell(point.step_time_s),
                 number_cell(point.tokens_per_s, NumberStyle::whole), number_cell(one.speed, NumberStyle::percent),
                 number_cell(point.mfu, NumberStyle::percent), number_cell(point.exposed_communication_s),
                 number_cell(point.bubble_fraction, NumberStyle::percent), number_cell(point.peak_memory_gib),
                 text_cell(one.fits ? "yes" : "no"), text_cell(limit_words(point))});
        }
        table.rows.push_back(std::move(row));
    };
    add(sweep.base, sweep.base_values, " (plan file)");
    for (const SweepPoint& point : sweep.points) add(point, point.values, "");
    return table;
}

std::vector<PageFact> sweep_facts(const InputSweep& sweep) {
    const SweepPoint *best = nullptr, *worst = nullptr;
    for (const SweepPoint& point : sweep.points) {
        if (!point.point.is_found()) continue;
        if (best == nullptr || point.speed > best->speed) best = &point;
        if (worst == nullptr || point.speed < worst->speed) worst = &point;
    }
    if (best == nullptr) return {};
    const auto values = [](const SweepPoint& point) { return fmt::format("{}", fmt::join(point.values, ", ")); };
    return {{"Fastest", format_signed_percent(best->speed - 1), "with " + values(*best)},
            {"Slowest", format_signed_percent(worst->speed - 1), "with " + values(*worst)},
            {"Step of the plan file",
             sweep.base.point.is_found() ? format_seconds(sweep.base.point.step_time_s) : "none", sweep.plan}};
}

/// What the tables do not say by themselves.
void add_notes(const InputSweep& sweep, const SweepAxes& axes, PageSection& section) {
    const auto misfits = std::count_if(sweep.points.begin(), sweep.points.end(),
                                       [](const SweepPoint& point) { return point.point.is_found() && !point.fits; });
    if (axes.is_number) {
        for (std::string& note : crossings(sweep, axes)) section.notes.push_back(std::move(note));
        if (sweep.replans) {
            for (std::string& note : plan_changes(sweep, axes)) section.notes.push_back(std::move(note));
        }
    }
    if (misfits > 0) {
        section.notes.push_back(
            fmt::format("{} of {} points {} not fit into the memory of the devices; such points are predicted as if "
                        "they did.",
                        misfits, sweep.points.size(), misfits == 1 ? "does" : "do"));
    }
    if (axes.names.size() > kMostLines) {
        section.notes.push_back(
            fmt::format("The charts show the first {} of {} combinations of the other inputs; the "
                        "table of all points has the rest.",
                        kMostLines, axes.names.size()));
    }
    section.notes.emplace_back("Speed: tokens/s beside those of the plan file.");
}

}  // namespace

PageSection sweep_section(const InputSweep& sweep) {
    std::vector<std::string> keys;
    for (const std::string& path : sweep.paths) keys.push_back(last_key(path));
    PageSection section{
        .title = fmt::format("What if: {} of {}", fmt::join(keys, ", "), sweep.plan),
        .lead = fmt::format("{} on {} with other values of {}; {}.", sweep.model, sweep.cluster,
                            fmt::join(sweep.paths, " and "),
                            sweep.replans ? "each point has the best plan for its values" : "all have the same plan"),
        .facts = sweep_facts(sweep)};
    if (sweep.points.empty() || sweep.paths.empty()) return section;
    const SweepAxes axes = axes_of(sweep);
    section.charts.push_back(sweep_chart(sweep, axes,
                                         {"Speed",
                                          {"speed", "", NumberStyle::percent},
                                          "Tokens a second beside those of the plan file.",
                                          [](const SweepPoint& one) { return one.speed; }}));
    section.charts.push_back(sweep_chart(sweep, axes,
                                         {"Step time",
                                          {"step time", "s"},
                                          "With the 90% interval of the prediction.",
                                          [](const SweepPoint& one) { return one.point.step_time_s; },
                                          true}));
    section.charts.push_back(sweep_chart(
        sweep, axes, {"Peak memory", {"peak memory", "GiB"}, "On the fullest device.", [](const SweepPoint& one) {
                          return one.point.peak_memory_gib;
                      }}));
    section.tables = {sweep_table(sweep)};
    add_notes(sweep, axes, section);
    return section;
}

}  // namespace orrery::reports
