#include "reports/sweep_report.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "core/csv.h"
#include "core/json_reader.h"
#include "reports/plan_words.h"
#include "reports/table.h"

namespace orrery::reports {
namespace {

using program::InputSweep;
using program::SweepPoint;

}  // namespace

std::string sweep_text(const InputSweep& sweep) {
    std::vector<Column> columns;
    // The last key alone, unless two paths end alike.
    for (const std::string& path : sweep.paths) {
        const std::string last = path.substr(path.rfind('.') + 1);
        bool alone = true;
        for (const std::string& other : sweep.paths) {
            alone = alone && (&other == &path || other.substr(other.rfind('.') + 1) != last);
        }
        columns.push_back({alone ? last : path});
    }
    if (sweep.replans) columns.push_back({"plan", Align::left});
    columns.insert(columns.end(), {{"step time"},
                                   {"tokens/s"},
                                   {"speed"},
                                   {"MFU"},
                                   {"exposed comm."},
                                   {"bubble"},
                                   {"peak GiB"},
                                   {"fits", Align::left},
                                   {"limited by", Align::left}});
    Table table(columns);
    const auto add = [&](const SweepPoint& one, const std::vector<std::string>& values) {
        std::vector<std::string> cells = values;
        const program::ScalingPoint& point = one.point;
        if (sweep.replans) cells.push_back(plan_words(point.plan));
        cells.insert(cells.end(), {format_seconds(point.step_time_s), format_integer(std::llround(point.tokens_per_s)),
                                   format_signed_percent(one.speed - 1), format_percent(point.mfu),
                                   format_percent(point.exposed_communication_s / point.step_time_s),
                                   format_percent(point.bubble_fraction), format_fixed(point.peak_memory_gib, 1),
                                   one.fits ? "yes" : "no", limit_words(point)});
        table.add_row(cells);
    };
    if (sweep.base.point.is_found()) {
        add(sweep.base, sweep.base_values);
        table.add_rule();
    }
    for (const SweepPoint& one : sweep.points) {
        if (one.point.is_found()) add(one, one.values);
    }
    std::string text = table.to_text();
    for (const SweepPoint& one : sweep.points) {
        if (!one.point.is_found()) text += fmt::format("{}: {}\n", fmt::join(one.values, ", "), one.point.reason);
    }
    return text + "the first row has the values of the plan file; speed: tokens/s beside it\n";
}

std::string sweep_csv(const InputSweep& sweep) {
    std::string text;
    for (const std::string& path : sweep.paths) text += csv_field(path) + ",";
    text +=
        "plan,step_time_s,tokens_per_s,speed,mfu,hfu,peak_memory_gib,fits,exposed_communication_s,bubble_fraction,"
        "limit,reason\n";
    const auto add = [&](const SweepPoint& one, const std::vector<std::string>& values) {
        for (const std::string& value : values) text += csv_field(value) + ",";
        const program::ScalingPoint& p = one.point;
        if (!p.is_found()) {
            text += fmt::format(",,,,,,,,,,,{}\n", csv_field(p.reason));
            return;
        }
        text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},\n", csv_field(plan_words(p.plan)),
                            shortest(p.step_time_s), shortest(p.tokens_per_s), shortest(one.speed), shortest(p.mfu),
                            shortest(p.hfu), shortest(p.peak_memory_gib), one.fits ? "true" : "false",
                            shortest(p.exposed_communication_s), shortest(p.bubble_fraction),
                            p.shares.empty() ? "" : std::string(name_of(p.shares.front().limit)));
    };
    add(sweep.base, sweep.base_values);
    for (const SweepPoint& one : sweep.points) add(one, one.values);
    return text;
}

}  // namespace orrery::reports
