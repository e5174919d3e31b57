#include "core/csv.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/error.h"
#include "core/json_reader.h"

namespace orrery {
namespace {

std::vector<std::string> fields_of(const std::string& line) {
    std::vector<std::string> fields(1);
    bool quoted = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
        const char letter = line[i];
        if (letter == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
            fields.back() += line[i++];
        } else if (letter == '"') {
            quoted = !quoted;
        } else if (letter == ',' && !quoted) {
            fields.emplace_back();
        } else if (letter != '\r') {
            fields.back() += letter;
        }
    }
    return fields;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        lines.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return lines;
}

}  // namespace

CsvRow::CsvRow(const std::string& file, std::size_t number, const std::vector<std::string>& header,
               std::vector<std::string> fields)
    : file_(file), number_(number) {
    if (fields.size() != header.size()) {
        throw InputError(file, name(), std::to_string(fields.size()) + " fields",
                         std::to_string(header.size()) + ", the number of columns in the header");
    }
    for (std::size_t i = 0; i < header.size(); ++i) fields_[header[i]] = std::move(fields[i]);
}

std::string CsvRow::text(const std::string& column) const {
    const std::string& value = fields_.at(column);
    if (value.empty()) fail(column, "a name");
    return value;
}

std::int64_t CsvRow::integer(const std::string& column, std::int64_t low, std::int64_t high) const {
    const std::string& value = fields_.at(column);
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc{} || end != value.data() + value.size() || number < low || number > high) {
        fail(column, "an integer from " + std::to_string(low) + " to " + std::to_string(high));
    }
    return number;
}

double CsvRow::positive(const std::string& column) const {
    const std::string& value = fields_.at(column);
    double number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc{} || end != value.data() + value.size() || !kPositive.contains(number)) {
        fail(column, description(kPositive));
    }
    return number;
}

void CsvRow::fail(const std::string& column, const std::string& allowed) const {
    throw InputError(file_, name() + ", column " + column, "'" + fields_.at(column) + "'", allowed);
}

CsvTable::CsvTable(const std::string& text, const std::string& file) {
    if (text.find('\0') != std::string::npos) throw InputError(file, "the text", "a NUL", "a table or a log as text");
    const std::vector<std::string> lines = lines_of(text);
    constexpr std::size_t kShown = 80;
    first_line_ = lines.empty() ? "nothing" : "'" + lines.front().substr(0, kShown) + "'";
    if (!lines.empty()) header_ = fields_of(lines.front());
    for (std::size_t i = 1; i < lines.size(); ++i) {
        if (lines[i].empty() || lines[i] == "\r") continue;
        rows_.emplace_back(file, i, header_, fields_of(lines[i]));
    }
}

bool CsvTable::has(const std::string& column) const {
    return std::count(header_.begin(), header_.end(), column) == 1;
}

std::string csv_field(const std::string& text) {
    if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
    std::string quoted = "\"";
    for (const char letter : text) quoted += letter == '"' ? std::string("\"\"") : std::string(1, letter);
    return quoted + "\"";
}

}  // namespace orrery
