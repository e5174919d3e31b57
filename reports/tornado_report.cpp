#include "reports/tornado_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "core/csv.h"
#include "core/json_reader.h"
#include "reports/plan_words.h"
#include "reports/table.h"

namespace orrery::reports {
namespace {

using program::SweepPoint;
using program::Tornado;
using program::TornadoBar;

std::string effect_words(const SweepPoint& point) {
    if (!point.point.is_found()) return "no plan";
    return format_signed_percent(point.speed - 1, 2) + (point.fits ? "" : " (does not fit)");
}

std::string csv_effect(const SweepPoint& point) {
    return point.point.is_found() ? shortest(point.point.step_time_s) + "," + shortest(point.speed) : ",";
}

}  // namespace

std::string tornado_text(const Tornado& tornado) {
    const std::string change = format_percent(tornado.change, 0);
    std::vector<Column> columns{
        {"input", Align::left}, {"value"}, {"elasticity"}, {"speed at -" + change}, {"at +" + change}};
    if (tornado.replans)
        columns.insert(columns.end(), {{"plan at -" + change, Align::left}, {"at +" + change, Align::left}});
    Table table(columns);
    std::vector<std::string> others, reasons;
    for (const TornadoBar& bar : tornado.bars) {
        if (!bar.matters()) {
            others.push_back(bar.path);
            continue;
        }
        std::vector<std::string> cells{bar.path, bar.value, bar.elasticity ? format_fixed(*bar.elasticity, 4) : "",
                                       effect_words(bar.less), effect_words(bar.more)};
        if (tornado.replans) {
            for (const SweepPoint* point : {&bar.less, &bar.more}) {
                cells.push_back(point->point.is_found() ? plan_words(point->point.plan) : "");
            }
        }
        table.add_row(cells);
        for (const SweepPoint* point : {&bar.less, &bar.more}) {
            if (!point->point.is_found()) reasons.push_back(point->point.reason);
        }
    }
    std::string text =
        fmt::format("step {} with the values of the file\n", format_seconds(tornado.base.point.step_time_s));
    text += table.to_text();
    for (const std::string& reason : reasons) text += reason + "\n";
    text += fmt::format("elasticity: percent of step time for each percent of the input, {}\n",
                        tornado.replans ? "from the two best plans" : "by the derivative of the simulation");
    if (!others.empty()) text += fmt::format("without effect: {}\n", fmt::join(others, ", "));
    return text;
}

std::string tornado_csv(const Tornado& tornado) {
    std::string text = "path,value,elasticity,step_time_less_s,speed_less,step_time_more_s,speed_more\n";
    for (const TornadoBar& bar : tornado.bars) {
        text +=
            fmt::format("{},{},{},{},{}\n", csv_field(bar.path), csv_field(bar.value),
                        bar.elasticity ? shortest(*bar.elasticity) : "", csv_effect(bar.less), csv_effect(bar.more));
    }
    return text;
}

}  // namespace orrery::reports
