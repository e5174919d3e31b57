// Tables as CSV: a header line, then one row a line. A field in double quotes may contain commas, and "" for a quote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace orrery {

/// One row of a table, accessed by column name. Errors are InputErrors that name file, row, column, value and what is
/// allowed.
class CsvRow {
  public:
    CsvRow(const std::string& file, std::size_t number, const std::vector<std::string>& header,
           std::vector<std::string> fields);
    /// Counted from 1, without the header.
    [[nodiscard]] std::size_t number() const { return number_; }
    /// Not empty.
    [[nodiscard]] std::string text(const std::string& column) const;
    [[nodiscard]] std::string optional_text(const std::string& column) const { return fields_.at(column); }
    [[nodiscard]] std::int64_t integer(const std::string& column, std::int64_t low, std::int64_t high) const;
    /// Greater than 0.
    [[nodiscard]] double positive(const std::string& column) const;

  private:
    [[nodiscard]] std::string name() const { return "row " + std::to_string(number_); }
    [[noreturn]] void fail(const std::string& column, const std::string& allowed) const;
    std::string file_;
    std::size_t number_;
    std::map<std::string, std::string> fields_;
};

class CsvTable {
  public:
    /// Empty lines are skipped. Throws InputError for a NUL, or a row with more or fewer fields than the header.
    CsvTable(const std::string& text, const std::string& file);
    /// Whether the header names the column once.
    [[nodiscard]] bool has(const std::string& column) const;
    [[nodiscard]] const std::vector<CsvRow>& rows() const { return rows_; }
    /// The begin of the header, for messages.
    [[nodiscard]] const std::string& first_line() const { return first_line_; }

  private:
    std::string first_line_;
    std::vector<std::string> header_;
    std::vector<CsvRow> rows_;
};

/// A field as CSV has it: in quotes if it needs them.
[[nodiscard]] std::string csv_field(const std::string& text);

}  // namespace orrery
