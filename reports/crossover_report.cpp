#include "reports/crossover_report.h"

#include <fmt/format.h>

#include "core/csv.h"
#include "core/json_reader.h"
#include "reports/table.h"

namespace orrery::reports {
namespace {

using program::Crossover;
using program::CrossoverRange;
using program::ScalingPoint;

std::string name_or_none(const CrossoverRange& range) {
    return range.plan.empty() ? "no plan" : range.plan;
}

std::string step_cell(const ScalingPoint& point) {
    return point.is_found() ? format_seconds(point.step_time_s) : "";
}

std::string csv_step(const ScalingPoint& point) {
    return point.is_found() ? shortest(point.step_time_s) : "";
}

}  // namespace

std::string crossover_text(const Crossover& crossover) {
    Table table({{"from"}, {"to"}, {"fastest", Align::left}, {"step at from"}, {"at to"}});
    for (const CrossoverRange& range : crossover.ranges) {
        table.add_row({fmt::format("{:.4g}", range.low), fmt::format("{:.4g}", range.high), name_or_none(range),
                       step_cell(range.at_low), step_cell(range.at_high)});
    }
    std::string text = crossover.path + "\n" + table.to_text();
    for (std::size_t i = 1; i < crossover.ranges.size(); ++i) {
        const CrossoverRange &below = crossover.ranges[i - 1], &above = crossover.ranges[i];
        text += fmt::format("above {:.4g} {} beats {}\n", above.low, name_or_none(above), name_or_none(below));
    }
    if (crossover.ranges.size() == 1) text += "the fastest plan does not change\n";
    for (const CrossoverRange& range : crossover.ranges) {
        if (range.plan.empty()) text += fmt::format("no plan at {:.4g}: {}\n", range.low, range.at_low.reason);
    }
    return text;
}

std::string crossover_csv(const Crossover& crossover) {
    std::string text = "path,low,high,plan,step_time_low_s,step_time_high_s\n";
    for (const CrossoverRange& range : crossover.ranges) {
        text += fmt::format("{},{},{},{},{},{}\n", csv_field(crossover.path), shortest(range.low), shortest(range.high),
                            csv_field(range.plan), csv_step(range.at_low), csv_step(range.at_high));
    }
    return text;
}

}  // namespace orrery::reports
