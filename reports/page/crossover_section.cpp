#include <fmt/format.h>
#include <fmt/ranges.h>

#include "reports/page/sections.h"

namespace orrery::reports {

using program::Crossover;
using program::CrossoverRange;
using program::ScalingPoint;

PageSection crossover_section(const Crossover& crossover) {
    PageSection section{
        .title = "The fastest plan by " + crossover.path,
        .lead = fmt::format("{} on {}; {}.", crossover.model, crossover.cluster,
                            crossover.replans ? "each range has the best of all plans"
                                              : fmt::format("the fastest of {}", fmt::join(crossover.plans, ", ")))};
    PageTable table{
        .title = "Ranges",
        .columns = {{"from"}, {"to"}, {"fastest plan", "", true}, {"step at from", "s"}, {"step at to", "s"}},
        .rows = {},
        .row_kind = "ranges"};
    const auto step = [](const ScalingPoint& point) {
        return number_cell(point.is_found() ? std::optional(point.step_time_s) : std::nullopt);
    };
    for (const CrossoverRange& range : crossover.ranges) {
        table.rows.push_back({number_cell(range.low), number_cell(range.high),
                              text_cell(range.plan.empty() ? "no plan" : range.plan), step(range.at_low),
                              step(range.at_high)});
        if (range.plan.empty()) section.notes.push_back(fmt::format("At {:.4g}: {}", range.low, range.at_low.reason));
    }
    section.tables = {std::move(table)};
    section.notes.push_back(
        fmt::format("The ends of ranges are known to {}.", number_text(crossover.accuracy, NumberStyle::percent)));
    return section;
}

}  // namespace orrery::reports
