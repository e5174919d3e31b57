#include "reports/fit_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "reports/error_json.h"
#include "reports/table.h"

namespace orrery::reports {
namespace {

using json = nlohmann::ordered_json;

double rounded_to_three_digits(double value) {
    return std::stod(fmt::format("{:.3g}", value));
}

}  // namespace

std::string fit_report_text(const FitReport& report) {
    Table figures({{"figure", Align::left}, {"before"}, {"fitted"}, {"rows"}, {"", Align::left}});
    for (const FitReport::Figure& figure : report.figures) {
        figures.add_row({figure.key, fmt::format("{:.3g}", figure.before), fmt::format("{:.3g}", figure.fitted),
                         std::to_string(figure.rows), figure.held ? "held: too few rows move it" : ""});
    }
    Table table(
        {{"errors", Align::left}, {"messages", Align::left}, {"rows"}, {"median"}, {"mean"}, {"p90"}, {"bias"}});
    for (const FitReport::Errors& errors : report.errors) {
        const auto add = [&](const char* messages, const ErrorSummary& summary) {
            if (summary.rows == 0) return;
            std::vector<std::string> cells = error_cells(summary);
            cells.insert(cells.begin(), {errors.title, messages});
            table.add_row(std::move(cells));
        };
        add("1 MiB and more", errors.from_1_mib);
        add("below 1 MiB", errors.below);
    }
    return fmt::format("NCCL's figures of {}, fitted to {} measured collectives\n\n{}\n{}", report.profile, report.rows,
                       figures.to_text(), table.to_text()) +
           "A part: one operation at one number of ranks; for a network, one system.\n";
}

std::string fit_report_json(const FitReport& report) {
    json figures = json::array(), errors = json::object();
    for (const FitReport::Figure& figure : report.figures) {
        figures.push_back({{"key", figure.key},
                           {"before", figure.before},
                           {"fitted", rounded_to_three_digits(figure.fitted)},
                           {"rows", figure.rows},
                           {"held", figure.held}});
    }
    for (const FitReport::Errors& one : report.errors) {
        json& sizes = errors[one.key] = json::object();
        if (one.from_1_mib.rows > 0) sizes["from_1_mib"] = error_json(one.from_1_mib);
        if (one.below.rows > 0) sizes["below_1_mib"] = error_json(one.below);
    }
    const json document{{"schema", "orrery.nccl_fit/1"},
                        {"profile", report.profile},
                        {"rows", report.rows},
                        {"figures", figures},
                        {"errors", errors}};
    return document.dump(2) + "\n";
}

}  // namespace orrery::reports
