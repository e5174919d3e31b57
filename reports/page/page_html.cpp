// The page as one HTML file: text and tables are written here, charts are drawn by page.js with Chart.js. Both, and the
// style sheet, are embedded in the binary.
#include <fmt/format.h>

#include <span>

#include "core/embedded.h"
#include "core/error.h"
#include "core/json_value.h"
#include "reports/page/page.h"
#include "reports/xml.h"

namespace orrery {
std::span<const EmbeddedFile> page_style_files();
std::span<const EmbeddedFile> page_script_files();
std::span<const EmbeddedFile> chart_library_files();
}  // namespace orrery

namespace orrery::reports {
namespace {

/// Nothing is loaded, sent or framed; the page's own style and scripts stand in it.
constexpr const char* kSecurityPolicy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// Cells with more bytes are given room.
constexpr std::size_t kLongText = 28;

/// JSON inside of a script element: "<" would allow the text to end the element.
std::string script_json(const JsonValue& json) {
    std::string text;
    for (const char c : json.text()) {
        if (c == '<') {
            text += "\\u003c";
        } else {
            text += c;
        }
    }
    return text;
}

JsonValue measure_json(const Measure& measure) {
    return JsonValue::object()
        .set("name", JsonValue(measure.name))
        .set("unit", JsonValue(measure.unit))
        .set("style", JsonValue(name_of(measure.style)));
}

JsonValue axis_json(const ChartAxis& axis) {
    return JsonValue::object()
        .set("measure", measure_json(axis.measure))
        .set("scale", JsonValue(name_of(axis.scale)))
        .set("categories", JsonValue(axis.categories))
        .set("from_zero", JsonValue(axis.from_zero));
}

JsonValue point_json(const ChartPoint& point) {
    JsonValue json = JsonValue::object();
    json.set("x", JsonValue(point.x));
    if (point.y) json.set("y", JsonValue(*point.y));
    if (point.low) json.set("low", JsonValue(*point.low));
    if (point.high) json.set("high", JsonValue(*point.high));
    if (!point.label.empty()) json.set("label", JsonValue(point.label));
    return json;
}

JsonValue chart_json(const Chart& chart, const std::string& id) {
    std::vector<JsonValue> all;
    for (const ChartSeries& series : chart.series) {
        std::vector<JsonValue> points;
        for (const ChartPoint& point : series.points) points.push_back(point_json(point));
        all.push_back(JsonValue::object()
                          .set("name", JsonValue(series.name))
                          .set("role", JsonValue(name_of(series.role)))
                          .set("points", JsonValue(std::move(points))));
    }
    return JsonValue::object()
        .set("id", JsonValue(id))
        .set("title", JsonValue(chart.title))
        .set("kind", JsonValue(name_of(chart.kind)))
        .set("x", axis_json(chart.x))
        .set("y", axis_json(chart.y))
        .set("band", JsonValue(chart.band))
        .set("series", JsonValue(std::move(all)));
}

/// Names of keys may break where their words do.
std::string breakable(const std::string& header) {
    std::string html;
    for (const char c : xml_text(header)) {
        html += c;
        if (c == '_' || c == '.') html += "<wbr>";
    }
    return html;
}

std::string table_html(const PageTable& table) {
    std::string html = fmt::format(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table><caption>{0}</caption>"
        "<thead><tr>",
        xml_text(table.title));
    for (const PageColumn& column : table.columns) {
        html += fmt::format("<th scope=\"col\"{}>{}{}</th>", column.is_text ? "" : " class=\"number\"",
                            breakable(column.header),
                            column.unit.empty() ? "" : fmt::format(" <small>{}</small>", xml_text(column.unit)));
    }
    html += "</tr></thead>\n<tbody>\n";
    for (const auto& row : table.rows) {
        ORRERY_CHECK(row.size() == table.columns.size(), "a row of " + table.title + " has other columns");
        html += "<tr>";
        for (std::size_t i = 0; i < row.size(); ++i) {
            const bool is_long = table.columns[i].is_text && row[i].text.size() > kLongText;
            const char* const style = !table.columns[i].is_text ? " class=\"number\""
                                      : is_long                 ? " class=\"long\""
                                                                : "";
            html += i == 0 ? fmt::format("<th scope=\"row\"{}>{}</th>", style, xml_text(row[i].text))
                           : fmt::format("<td{}>{}</td>", style, xml_text(row[i].text));
        }
        html += "</tr>\n";
    }
    return html + "</tbody></table></div>\n";
}

/// A table that the reader can fold; long ones are folded.
std::string folded_html(const PageTable& table, const std::string& headline) {
    const std::string count =
        table.rows.size() < 2 ? "" : fmt::format(" <small>{} {}</small>", table.rows.size(), xml_text(table.row_kind));
    return fmt::format("<details{}><summary>{}{}</summary>\n{}</details>\n",
                       table.rows.size() > kMostRowsShown ? "" : " open", xml_text(headline), count, table_html(table));
}

bool needs_width(const Chart& chart) {
    constexpr std::size_t kMostColumns = 5, kMostCategories = 6;
    return table_of(chart).columns.size() > kMostColumns || chart.x.categories.size() > kMostCategories ||
           chart.kind == ChartKind::floating_bars;
}

/// Two narrow charts stand beside each other; one without a neighbour is wide.
std::vector<bool> widths_of(const std::vector<Chart>& charts) {
    std::vector<bool> wide;
    for (const Chart& chart : charts) wide.push_back(needs_width(chart));
    for (std::size_t i = 0; i < wide.size(); ++i) {
        if (wide[i]) continue;
        if (i + 1 < wide.size() && !wide[i + 1]) {
            ++i;
        } else {
            wide[i] = true;
        }
    }
    return wide;
}

std::string chart_html(const Chart& chart, bool wide, const std::string& id) {
    return fmt::format(
        "<figure class=\"{0}\"><figcaption><h3>{1}</h3><p>{2}</p></figcaption>\n"
        "<div class=\"canvas\"><canvas id=\"{3}\" role=\"img\" aria-label=\"{1}: {4}. The table below has its "
        "numbers.\"></canvas></div>\n{5}</figure>\n",
        wide ? "wide" : "half", xml_text(chart.title), xml_text(chart.caption), id,
        xml_text(chart.y.measure.title() + " by " + chart.x.measure.title()), folded_html(table_of(chart), "Numbers"));
}

std::string facts_html(const std::vector<PageFact>& facts) {
    if (facts.empty()) return "";
    std::string html = "<dl class=\"facts\">\n";
    for (const PageFact& fact : facts) {
        html += fmt::format("<div><dt>{}</dt><dd>{}{}</dd></div>\n", xml_text(fact.label), xml_text(fact.value),
                            fact.note.empty() ? "" : fmt::format("<small>{}</small>", xml_text(fact.note)));
    }
    return html + "</dl>\n";
}

std::string section_html(const PageSection& section, std::size_t number, std::vector<JsonValue>& charts) {
    std::string html = fmt::format("<section aria-labelledby=\"section-{0}\">\n<h2 id=\"section-{0}\">{1}</h2>\n",
                                   number, xml_text(section.title));
    if (!section.lead.empty()) html += fmt::format("<p class=\"lead\">{}</p>\n", xml_text(section.lead));
    html += facts_html(section.facts);
    if (!section.charts.empty()) html += "<div class=\"figures\">\n";
    const std::vector<bool> wide = widths_of(section.charts);
    for (std::size_t i = 0; i < section.charts.size(); ++i) {
        const std::string id = fmt::format("chart-{}", charts.size() + 1);
        html += chart_html(section.charts[i], wide[i], id);
        charts.push_back(chart_json(section.charts[i], id));
    }
    if (!section.charts.empty()) html += "</div>\n";
    for (const PageTable& table : section.tables) {
        html += "<div class=\"block\">" + folded_html(table, table.title) + "</div>\n";
    }
    if (!section.notes.empty()) {
        html += "<ul class=\"notes\">\n";
        for (const std::string& note : section.notes) html += fmt::format("<li>{}</li>\n", xml_text(note));
        html += "</ul>\n";
    }
    return html + "</section>\n";
}

std::string contents_html(const ReportPage& page) {
    std::string html = "<nav aria-label=\"Sections\"><ol>\n";
    for (std::size_t i = 0; i < page.sections.size(); ++i) {
        html += fmt::format("<li><a href=\"#section-{}\">{}</a></li>\n", i + 1, xml_text(page.sections[i].title));
    }
    return html + "</ol></nav>\n";
}

std::string embedded(std::span<const EmbeddedFile> files) {
    return std::string(files.front().content);
}

}  // namespace

std::string page_html(const ReportPage& page) {
    std::vector<JsonValue> charts;
    std::string sections;
    for (std::size_t i = 0; i < page.sections.size(); ++i) {
        sections += section_html(page.sections[i], i + 1, charts);
    }
    std::string html = fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta name=\"color-scheme\" content=\"light "
        "dark\">\n<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n",
        kSecurityPolicy, xml_text(page.title), embedded(page_style_files()));
    html += fmt::format("<header><p class=\"brand\">Orrery</p>\n<h1>{}</h1>\n<p class=\"subtitle\">{}</p>\n",
                        xml_text(page.title), xml_text(page.subtitle));
    html += contents_html(page) + "</header>\n<main>\n";
    html +=
        "<noscript><p class=\"lead\">The charts need JavaScript; the tables hold all of their "
        "numbers.</p></noscript>\n";
    html += sections + "</main>\n";
    html +=
        "<script type=\"application/json\" id=\"charts\">" + script_json(JsonValue(std::move(charts))) + "</script>\n";
    html += "<script>\n" + embedded(chart_library_files()) + "</script>\n";
    html += "<script>\n" + embedded(page_script_files()) + "</script>\n";
    return html + "</body>\n</html>\n";
}

}  // namespace orrery::reports
