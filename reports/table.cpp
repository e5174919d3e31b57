#include "reports/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/units.h"

namespace orrery::reports {
namespace {

constexpr std::size_t kGap = 2;
constexpr const char* kNotAvailable = "n/a";

std::string three_digits(double value) {
    const double size = std::abs(value);
    // The limits are half a unit of the last printed digit below 10 and 100, so that 9.996 does not read 10.00.
    const int decimals = size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
    return fmt::format("{:.{}f}", value, decimals);
}

struct Scale {
    double factor;
    const char* unit;
};

/// Uses the first scale in which the number prints below 1000, else the last one.
template <std::size_t N>
std::string scaled(double value, const std::array<Scale, N>& scales) {
    for (std::size_t i = 0; i < N; ++i) {
        const double in_unit = value / scales[i].factor;
        if (std::abs(in_unit) < 999.5 || i + 1 == N) return three_digits(in_unit) + " " + scales[i].unit;
    }
    return kNotAvailable;
}

void append_padded(std::string& line, const std::string& cell, std::size_t width, Align align) {
    const std::size_t padding = width - std::min(width, display_width(cell));
    if (align == Align::right) line.append(padding, ' ');
    line += cell;
    if (align == Align::left) line.append(padding, ' ');
}

void finish_line(std::string& text, std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    text += line;
    text += '\n';
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
    ORRERY_CHECK(!columns_.empty(), "a table has columns");
}

void Table::add_row(std::vector<std::string> cells) {
    ORRERY_CHECK(cells.size() == columns_.size(), "a table row has as many cells as the table has columns");
    rows_.push_back(std::move(cells));
}

void Table::add_rule() {
    rows_.emplace_back();
}

std::size_t Table::row_count() const {
    return static_cast<std::size_t>(
        std::count_if(rows_.begin(), rows_.end(), [](const auto& row) { return !row.empty(); }));
}

std::string Table::to_text(int indent) const {
    std::vector<std::size_t> widths;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        std::size_t width = display_width(columns_[i].header);
        for (const auto& row : rows_) {
            if (!row.empty()) width = std::max(width, display_width(row[i]));
        }
        widths.push_back(width);
    }
    std::string text;
    const std::string margin(static_cast<std::size_t>(indent), ' ');
    const auto add_line = [&](const auto& cell_at) {
        std::string line = margin;
        for (std::size_t i = 0; i < columns_.size(); ++i) {
            if (i > 0) line.append(kGap, ' ');
            append_padded(line, cell_at(i), widths[i], columns_[i].align);
        }
        finish_line(text, std::move(line));
    };
    const auto rule = [&](std::size_t i) { return std::string(widths[i], '-'); };
    add_line([&](std::size_t i) { return columns_[i].header; });
    add_line(rule);
    for (const auto& row : rows_) {
        if (row.empty()) {
            add_line(rule);
        } else {
            add_line([&](std::size_t i) { return row[i]; });
        }
    }
    return text;
}

std::size_t display_width(const std::string& text) {
    return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;  // continuation bytes have no width
    }));
}

std::string format_seconds(double seconds) {
    if (!std::isfinite(seconds)) return kNotAvailable;
    if (seconds == 0) return "0 s";
    constexpr std::array<Scale, 5> scales = {{{1e-12, "ps"}, {1e-9, "ns"}, {1e-6, "us"}, {1e-3, "ms"}, {1, "s"}}};
    return scaled(seconds, scales);
}

std::string format_picoseconds(std::int64_t picoseconds) {
    return format_seconds(to_seconds(Picoseconds(picoseconds)));
}

std::string format_bytes(double bytes) {
    if (!std::isfinite(bytes)) return kNotAvailable;
    if (std::abs(bytes) < 1000) return fmt::format("{:.0f} B", bytes);
    constexpr std::array<Scale, 4> scales = {{{1e3, "kB"}, {1e6, "MB"}, {1e9, "GB"}, {1e12, "TB"}}};
    return scaled(bytes, scales);
}

std::string format_count(double count) {
    if (!std::isfinite(count)) return kNotAvailable;
    if (std::abs(count) < 999.5 && count == std::floor(count)) return fmt::format("{:.0f}", count);
    constexpr std::array<Scale, 6> scales = {{{1, ""}, {1e3, "k"}, {1e6, "M"}, {1e9, "G"}, {1e12, "T"}, {1e15, "P"}}};
    std::string text = scaled(count, scales);
    if (text.back() == ' ') text.pop_back();
    return text;
}

std::string format_memory(std::int64_t bytes) {
    if (std::abs(bytes) < 1000) return fmt::format("{} B", bytes);
    constexpr std::array<Scale, 4> scales = {
        {{1024.0, "KiB"}, {1024.0 * 1024, "MiB"}, {kGibibyte, "GiB"}, {kGibibyte * 1024, "TiB"}}};
    return scaled(static_cast<double>(bytes), scales);
}

std::string format_percent(double fraction, int decimals) {
    return std::isfinite(fraction) ? fmt::format("{:.{}f}%", 100 * fraction, decimals) : kNotAvailable;
}

std::string format_signed_percent(double fraction, int decimals) {
    if (!std::isfinite(fraction)) return kNotAvailable;
    std::string text = fmt::format("{:+.{}f}%", 100 * fraction, decimals);
    const bool is_zero = text.find_first_of("123456789") == std::string::npos;
    return is_zero ? text.substr(1) : text;  // neither "+0.0%" nor "-0.0%"
}

std::string format_fixed(double value, int decimals) {
    return std::isfinite(value) ? fmt::format("{:.{}f}", value, decimals) : kNotAvailable;
}

std::string format_integer(std::int64_t value) {
    std::string digits = fmt::format("{}", value);
    const std::size_t first = value < 0 ? 1 : 0;
    for (std::size_t at = digits.size(); at > first + 3;) {
        at -= 3;
        digits.insert(at, 1, ',');
    }
    return digits;
}

}  // namespace orrery::reports
