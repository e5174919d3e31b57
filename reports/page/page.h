// A report as sections of facts, charts and tables. The writers of HTML, Markdown and CSV know nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/enum_names.h"

namespace orrery::reports {

/// How the numbers of an axis or a column are shown.
enum class NumberStyle : std::uint8_t {
    plain,           // four significant digits
    exact,           // as many digits as the value has
    whole,           // 12,345
    percent,         // a share of 1
    signed_percent,  // a change beside 1
};
[[nodiscard]] std::string_view name_of(NumberStyle style);

/// "step time", "s".
struct Measure {
    std::string name, unit;
    NumberStyle style = NumberStyle::plain;
    /// "step time (s)".
    [[nodiscard]] std::string title() const;
};

struct PageCell {
    std::string text;
    std::optional<double> value;  // the number behind the text, for CSV
};
[[nodiscard]] PageCell text_cell(std::string text);
/// "-" if there is no value.
[[nodiscard]] PageCell number_cell(const std::optional<double>& value, NumberStyle style = NumberStyle::plain);
[[nodiscard]] std::string number_text(double value, NumberStyle style);

struct PageColumn {
    std::string header, unit;
    bool is_text = false;
};

struct PageTable {
    std::string title;
    std::vector<PageColumn> columns;
    std::vector<std::vector<PageCell>> rows;
    std::string row_kind = "rows";  // what a row is, in the plural
};
/// Of more rows than these only the headline is shown until the reader asks for them.
inline constexpr std::size_t kMostRowsShown = 12;

enum class ChartKind : std::uint8_t {
    line,
    scatter,
    bars,           // beside each other
    stacked_bars,   // on each other
    floating_bars,  // from the low end of each point to its high end, one row for each category: waterfall, tornado
};
[[nodiscard]] std::string_view name_of(ChartKind kind);

enum class AxisScale : std::uint8_t { linear, logarithmic, categories };
[[nodiscard]] std::string_view name_of(AxisScale scale);

/// What a series stands for, by which it is drawn.
enum class SeriesRole : std::uint8_t {
    value,
    ideal,      // what could be at best: dashed
    limit,      // what must not be exceeded: dotted
    total,      // of a waterfall: where it starts and ends
    increase,   // of a waterfall
    decrease,   // of a waterfall
    secondary,  // points of less weight
};
[[nodiscard]] std::string_view name_of(SeriesRole role);

struct ChartPoint {
    double x = 0;                     // with categories: the number of one
    std::optional<double> y;          // none: a gap
    std::optional<double> low, high;  // an interval around y; of floating bars: the ends of the bar, whose change is y
    std::string label;                // of a point of a scatter chart
};

struct ChartSeries {
    std::string name;
    SeriesRole role = SeriesRole::value;
    std::vector<ChartPoint> points;
};

struct ChartAxis {
    Measure measure;
    AxisScale scale = AxisScale::linear;
    std::vector<std::string> categories;
    bool from_zero = false;
};

struct Chart {
    std::string title;
    ChartKind kind = ChartKind::line;
    ChartAxis x, y;
    std::vector<ChartSeries> series;
    std::string caption;                                      // how to read it
    std::string band = "";                                    // what the intervals are: "90% interval"
    std::string low_name = "90% from", high_name = "90% to";  // their ends as columns
    std::string points = "";                                  // what a point of a scatter chart is: "run"
};

/// The numbers of a chart, all of them.
[[nodiscard]] PageTable table_of(const Chart& chart);

struct PageFact {
    std::string label, value, note;
};

struct PageSection {
    std::string title, lead;
    std::vector<PageFact> facts;
    std::vector<Chart> charts;  // each is written with its numbers
    std::vector<PageTable> tables;
    std::vector<std::string> notes;
};

struct ReportPage {
    std::string title, subtitle;
    std::vector<PageSection> sections;
};

/// One file that needs nothing from the network.
[[nodiscard]] std::string page_html(const ReportPage& page);
[[nodiscard]] std::string page_markdown(const ReportPage& page);
/// One line for each number or text of a table: section, table, row, column, unit, value.
[[nodiscard]] std::string page_csv(const ReportPage& page);

}  // namespace orrery::reports

namespace orrery {
template <>
inline constexpr int kValuesOf<reports::NumberStyle> = static_cast<int>(reports::NumberStyle::signed_percent) + 1;
template <>
inline constexpr int kValuesOf<reports::ChartKind> = static_cast<int>(reports::ChartKind::floating_bars) + 1;
template <>
inline constexpr int kValuesOf<reports::AxisScale> = static_cast<int>(reports::AxisScale::categories) + 1;
template <>
inline constexpr int kValuesOf<reports::SeriesRole> = static_cast<int>(reports::SeriesRole::secondary) + 1;
}  // namespace orrery
