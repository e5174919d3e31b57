// The page as Markdown and as CSV.
#include <fmt/format.h>

#include "core/csv.h"
#include "core/json_reader.h"
#include "reports/page/page.h"

namespace orrery::reports {
namespace {

/// Text without meaning to Markdown or to HTML inside of it, on one line.
std::string markdown_text(const std::string& text) {
    std::string result;
    for (const char c : text) {
        if (c == '<') {
            result += "&lt;";
        } else if (c == '&') {
            result += "&amp;";
        } else if (c == '\n' || c == '\r' || c == '\t') {
            result += ' ';
        } else {
            if (std::string_view("\\`*_[]|#").find(c) != std::string_view::npos) result += '\\';
            result += c;
        }
    }
    return result;
}

std::string markdown_table(const PageTable& table) {
    std::string text = "|", rule = "|";
    for (const PageColumn& column : table.columns) {
        text += fmt::format(" {} |", markdown_text(Measure{column.header, column.unit}.title()));
        rule += column.is_text ? "---|" : "--:|";
    }
    text += "\n" + rule + "\n";
    for (const auto& row : table.rows) {
        text += "|";
        for (const PageCell& cell : row) text += fmt::format(" {} |", markdown_text(cell.text));
        text += "\n";
    }
    return text + "\n";
}

std::string markdown_section(const PageSection& section) {
    std::string text = fmt::format("## {}\n\n", markdown_text(section.title));
    if (!section.lead.empty()) text += markdown_text(section.lead) + "\n\n";
    for (const PageFact& fact : section.facts) {
        text += fmt::format("- {}: **{}**{}\n", markdown_text(fact.label), markdown_text(fact.value),
                            fact.note.empty() ? "" : ", " + markdown_text(fact.note));
    }
    if (!section.facts.empty()) text += "\n";
    for (const Chart& chart : section.charts) {
        text += fmt::format("### {}\n\n{}\n\n", markdown_text(chart.title), markdown_text(chart.caption));
        text += markdown_table(table_of(chart));
    }
    for (const PageTable& table : section.tables) {
        text += fmt::format("### {}\n\n", markdown_text(table.title)) + markdown_table(table);
    }
    for (const std::string& note : section.notes) text += fmt::format("- {}\n", markdown_text(note));
    return section.notes.empty() ? text : text + "\n";
}

std::string csv_lines(const PageSection& section, const PageTable& table) {
    std::string text;
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
        for (std::size_t k = 0; k < table.columns.size(); ++k) {
            const PageCell& cell = table.rows[i][k];
            text += fmt::format("{},{},{},{},{},{}\n", csv_field(section.title), csv_field(table.title), i + 1,
                                csv_field(table.columns[k].header), csv_field(table.columns[k].unit),
                                cell.value         ? shortest(*cell.value)
                                : cell.text == "-" ? ""
                                                   : csv_field(cell.text));
        }
    }
    return text;
}

}  // namespace

std::string page_markdown(const ReportPage& page) {
    std::string text = fmt::format("# {}\n\n{}\n\n", markdown_text(page.title), markdown_text(page.subtitle));
    for (const PageSection& section : page.sections) text += markdown_section(section);
    while (text.ends_with("\n\n")) text.pop_back();
    return text;
}

std::string page_csv(const ReportPage& page) {
    std::string text = "section,table,row,column,unit,value\n";
    for (const PageSection& section : page.sections) {
        for (const Chart& chart : section.charts) text += csv_lines(section, table_of(chart));
        for (const PageTable& table : section.tables) text += csv_lines(section, table);
    }
    return text;
}

}  // namespace orrery::reports
