// Text tables and number formats shared by all reports. Plain text, the same on a terminal and in a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orrery::reports {

enum class Align : std::uint8_t { left, right };

struct Column {
    std::string header;  // includes the unit if the whole column has one: "peak GiB"
    Align align = Align::right;
};

/// Columns are two spaces apart and as wide as their widest cell, with a rule under the header and no trailing spaces.
/// Width is counted in UTF-8 code points.
class Table {
  public:
    explicit Table(std::vector<Column> columns);
    /// Takes one cell per column (ORRERY_CHECK).
    void add_row(std::vector<std::string> cells);
    /// Adds a rule below the rows added so far.
    void add_rule();
    [[nodiscard]] std::size_t row_count() const;
    /// Ends in a newline. Each line is indented by `indent` spaces.
    [[nodiscard]] std::string to_text(int indent = 0) const;

  private:
    std::vector<Column> columns_;
    std::vector<std::vector<std::string>> rows_;  // an empty row is a rule
};

/// Number of code points of valid UTF-8.
[[nodiscard]] std::size_t display_width(const std::string& text);

// Three significant digits with the unit that keeps the number between 1 and 1000. Non-finite values read "n/a".
[[nodiscard]] std::string format_seconds(double seconds);                // "12.3 ms", "1.05 s", "4.20 us"
[[nodiscard]] std::string format_picoseconds(std::int64_t picoseconds);  // the same, from simulated time
[[nodiscard]] std::string format_bytes(double bytes);                    // decimal: "1.50 GB", "12.0 kB", "17 B"
[[nodiscard]] std::string format_count(double count);                    // "1.23 k", "4.56 M", "7.00 G", "17"
[[nodiscard]] std::string format_memory(std::int64_t bytes);             // binary: "79.1 GiB", "12.0 MiB", "17 B"
// Fixed units.
[[nodiscard]] std::string format_percent(double fraction, int decimals = 1);         // "41.7%"
[[nodiscard]] std::string format_signed_percent(double fraction, int decimals = 1);  // "+3.2%", "-0.4%"
[[nodiscard]] std::string format_fixed(double value, int decimals);
/// Thousands grouped by commas: "1,048,576".
[[nodiscard]] std::string format_integer(std::int64_t value);

}  // namespace orrery::reports
