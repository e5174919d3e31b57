// The writers of a page: HTML, Markdown and CSV.
#include "reports/page/page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace orrery::reports {
namespace {

using nlohmann::json;

constexpr const char* kHostile = "</script><img src=x onerror=alert(1)> & \"quotes\" | *stars*";

Chart line_chart() {
    return {.title = "Throughput",
            .kind = ChartKind::line,
            .x = {.measure = {"devices", "", NumberStyle::whole}, .scale = AxisScale::logarithmic, .categories = {}},
            .y = {.measure = {"throughput", "tokens/s", NumberStyle::whole}, .categories = {}},
            .series = {{.name = "dgx",
                        .points = {{.x = 8, .y = 1000.25, .low = 900.0, .high = 1100.0}, {.x = 16, .y = 1900.0}}},
                       {.name = "ideal", .role = SeriesRole::ideal, .points = {{.x = 8, .y = 1000.0}}}},
            .caption = "How to read it.",
            .band = "90% interval"};
}

ReportPage page_of(const std::string& text) {
    return {.title = text,
            .subtitle = text,
            .sections = {{.title = text,
                          .lead = text,
                          .facts = {{text, text, text}},
                          .charts = {line_chart()},
                          .tables = {{.title = text,
                                      .columns = {{text, text, true}, {"number", "s"}},
                                      .rows = {{text_cell(text), number_cell(0.5)}}}},
                          .notes = {text}}}};
}

/// What the page's scripts read.
json data_of(const std::string& html) {
    const std::string begin = "<script type=\"application/json\" id=\"charts\">";
    const std::size_t from = html.find(begin) + begin.size();
    return json::parse(html.substr(from, html.find("</script>", from) - from));
}

std::size_t count(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
}

TEST(Page, HtmlEscapesAllText) {
    const std::string plain = page_html(page_of("plain")), html = page_html(page_of(kHostile));
    EXPECT_EQ(html.find("<img"), std::string::npos);
    EXPECT_EQ(html.find("\"quotes\""), std::string::npos);
    for (const char* element : {"</script>", "<script", "<p", "<td", "<th", "<li", "<h2"}) {
        EXPECT_EQ(count(html, element), count(plain, element)) << element;
    }
    EXPECT_NE(html.find("&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt; &amp; &quot;quotes&quot;"),
              std::string::npos);
}

TEST(Page, TheDataOfChartsCannotEndTheirScript) {
    ReportPage page = page_of("plain");
    page.sections[0].charts[0].series[0].name = kHostile;
    page.sections[0].charts[0].series[0].points[0].label = kHostile;
    const std::string html = page_html(page);
    EXPECT_EQ(count(html, "</script>"), count(page_html(page_of("plain")), "</script>"));
    EXPECT_EQ(data_of(html)[0]["series"][0]["name"], kHostile);
    EXPECT_EQ(data_of(html)[0]["series"][0]["points"][0]["label"], kHostile);
}

TEST(Page, ChartsHaveTheirValuesInFull) {
    const json chart = data_of(page_html(page_of("plain")))[0];
    EXPECT_EQ(chart["kind"], "line");
    EXPECT_EQ(chart["x"]["scale"], "logarithmic");
    EXPECT_EQ(chart["y"]["measure"], (json{{"name", "throughput"}, {"unit", "tokens/s"}, {"style", "whole"}}));
    EXPECT_EQ(chart["series"][0]["points"],
              (json{{{"x", 8.0}, {"y", 1000.25}, {"low", 900.0}, {"high", 1100.0}}, {{"x", 16.0}, {"y", 1900.0}}}));
    EXPECT_EQ(chart["series"][1]["role"], "ideal");
}

TEST(Page, HtmlIsSelfContained) {
    const std::string html = page_html(page_of("plain"));
    EXPECT_NE(html.find("default-src 'none'"), std::string::npos);
    for (const char* loads : {"<link", "<img", "<iframe", "src=", "@import", "url("}) {
        // Chart.js's own text names none of these either.
        EXPECT_EQ(html.find(loads), std::string::npos) << loads;
    }
    EXPECT_NE(html.find("Released under the MIT License"), std::string::npos) << "the notice of Chart.js";
    EXPECT_EQ(html, page_html(page_of("plain")));
}

TEST(Page, LongTablesAreFolded) {
    ReportPage page = page_of("plain");
    PageTable& table = page.sections[0].tables[0];
    const std::size_t open = count(page_html(page), "<details open>");
    table.rows.resize(kMostRowsShown, table.rows[0]);
    EXPECT_EQ(count(page_html(page), "<details open>"), open);
    table.rows.push_back(table.rows[0]);
    EXPECT_EQ(count(page_html(page), "<details open>"), open - 1);
    EXPECT_EQ(count(page_html(page), "<details>"), 1U);
}

TEST(Page, ANarrowChartWithoutANeighbourIsWide) {
    ReportPage page = page_of("plain");
    std::vector<Chart>& charts = page.sections[0].charts;
    charts[0].series.pop_back();
    charts = {charts[0], charts[0], charts[0]};
    const std::string html = page_html(page);
    EXPECT_EQ(count(html, "<figure class=\"half\">"), 2U);
    EXPECT_EQ(count(html, "<figure class=\"wide\">"), 1U);
}

TEST(Page, TheTableOfAChartHasAllItsNumbers) {
    const PageTable table = table_of(line_chart());
    std::vector<std::string> headers;
    for (const PageColumn& column : table.columns) headers.push_back(column.header);
    EXPECT_EQ(headers, (std::vector<std::string>{"devices", "dgx", "dgx, 90% from", "dgx, 90% to", "ideal"}));
    ASSERT_EQ(table.rows.size(), 2U);
    EXPECT_EQ(table.rows[0][1].value, 1000.25);
    EXPECT_EQ(table.rows[0][1].text, "1,000");
    EXPECT_EQ(table.rows[0][2].value, 900.0);
    EXPECT_EQ(table.rows[0][3].value, 1100.0);
    EXPECT_EQ(table.rows[0][4].value, 1000.0);
    EXPECT_EQ(table.rows[1][0].text, "16");
    EXPECT_EQ(table.rows[1][2].text, "-");
    EXPECT_EQ(table.rows[1][4].value, std::nullopt);
}

TEST(Page, MarkdownHasTheSameTables) {
    const std::string text = page_markdown(page_of("plain"));
    EXPECT_NE(text.find("| devices | dgx (tokens/s) | dgx, 90% from (tokens/s) | dgx, 90% to (tokens/s) | ideal "
                        "(tokens/s) |\n|--:|--:|--:|--:|--:|\n| 8 | 1,000 | 900 | 1,100 | 1,000 |\n"
                        "| 16 | 1,900 | - | - | - |\n"),
              std::string::npos)
        << text;
    EXPECT_EQ(text.substr(0, 8), "# plain\n");
    EXPECT_TRUE(text.ends_with("- plain\n"));
}

TEST(Page, MarkdownEscapesItsOwnSigns) {
    const std::string text = page_markdown(page_of(kHostile));
    EXPECT_EQ(text.find("<img"), std::string::npos);
    EXPECT_NE(text.find("&lt;/script>&lt;img src=x onerror=alert(1)> &amp; \"quotes\" \\| \\*stars\\*"),
              std::string::npos)
        << text;
}

TEST(Page, CsvHasALineForEachNumber) {
    EXPECT_EQ(page_csv(page_of("a, b")),
              "section,table,row,column,unit,value\n"
              "\"a, b\",Throughput,1,devices,,8\n"
              "\"a, b\",Throughput,1,dgx,tokens/s,1000.25\n"
              "\"a, b\",Throughput,1,\"dgx, 90% from\",tokens/s,900\n"
              "\"a, b\",Throughput,1,\"dgx, 90% to\",tokens/s,1100\n"
              "\"a, b\",Throughput,1,ideal,tokens/s,1000\n"
              "\"a, b\",Throughput,2,devices,,16\n"
              "\"a, b\",Throughput,2,dgx,tokens/s,1900\n"
              "\"a, b\",Throughput,2,\"dgx, 90% from\",tokens/s,\n"
              "\"a, b\",Throughput,2,\"dgx, 90% to\",tokens/s,\n"
              "\"a, b\",Throughput,2,ideal,tokens/s,\n"
              "\"a, b\",\"a, b\",1,\"a, b\",\"a, b\",\"a, b\"\n"
              "\"a, b\",\"a, b\",1,number,s,0.5\n");
}

TEST(Page, NumbersHaveFourDigits) {
    const auto plain = [](double value) { return number_text(value, NumberStyle::plain); };
    EXPECT_EQ(plain(0), "0");
    EXPECT_EQ(plain(29.70441), "29.70");
    EXPECT_EQ(plain(-0.0625), "-0.06250");
    EXPECT_EQ(plain(123456.7), "123,457");
    EXPECT_EQ(plain(1.21934e-05), "1.219e-05");
    EXPECT_EQ(number_text(0.25, NumberStyle::exact), "0.25");
    EXPECT_EQ(number_text(0.98765, NumberStyle::percent), "98.8%");
    EXPECT_EQ(number_text(0.031, NumberStyle::signed_percent), "+3.1%");
    EXPECT_EQ(number_text(2154003.4, NumberStyle::whole), "2,154,003");
}

}  // namespace
}  // namespace orrery::reports
