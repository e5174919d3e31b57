#include "topologies/importers/foreign_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "core/error.h"
#include "core/file.h"

namespace orrery::topologies {
namespace {

constexpr std::size_t kMostNotes = 100;
constexpr std::size_t kMostShown = 64;
constexpr std::string_view kBlank = " \t";

std::string mebibytes(std::size_t bytes) {
    return std::to_string(bytes >> 20) + " MiB";
}

}  // namespace

void Notes::add(const std::string& text) {
    const std::string note = printable(text);
    if (std::find(list_.begin(), list_.end(), note) != list_.end()) return;
    if (list_.size() < kMostNotes) {
        list_.push_back(note);
    } else if (list_.size() == kMostNotes) {
        list_.emplace_back("more notes were left out");
    }
}

std::string read_foreign_file(const std::string& path) {
    std::error_code error;
    const std::filesystem::file_status status = std::filesystem::status(path, error);
    if (!std::filesystem::exists(status)) throw InputError(path + ": there is no such file");
    if (!std::filesystem::is_regular_file(status)) throw InputError(path + ": not a regular file");
    const std::uintmax_t bytes = std::filesystem::file_size(path, error);
    if (!error && bytes > kMostForeignBytes) {
        throw InputError(path, "size", std::to_string(bytes) + " bytes", "at most " + mebibytes(kMostForeignBytes));
    }
    std::string text = read_text_file(path);
    check_foreign_text(text, path);
    return text;
}

void check_foreign_text(const std::string& text, const std::string& file) {
    if (text.size() > kMostForeignBytes) {
        throw InputError(file, "size", std::to_string(text.size()) + " bytes",
                         "at most " + mebibytes(kMostForeignBytes));
    }
    if (const std::size_t at = text.find('\0'); at != std::string::npos) {
        throw InputError(file, "byte " + std::to_string(at), "a NUL", "text");
    }
}

std::vector<std::string_view> lines_of(std::string_view text, const std::string& file) {
    std::vector<std::string_view> lines;
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        std::string_view line = text.substr(0, end);
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
        if (line.size() > kMostLineBytes) {
            throw InputError(line_place(file, lines.size()), "length", std::to_string(line.size()) + " bytes",
                             "at most " + mebibytes(kMostLineBytes));
        }
        lines.push_back(line);
    }
    return lines;
}

std::vector<std::string_view> words_of(std::string_view line) {
    std::vector<std::string_view> words;
    for (std::size_t at = line.find_first_not_of(kBlank); at != std::string_view::npos;
         at = line.find_first_not_of(kBlank, at)) {
        const std::size_t end = std::min(line.find_first_of(kBlank, at), line.size());
        words.push_back(line.substr(at, end - at));
        at = end;
    }
    return words;
}

std::string_view trimmed(std::string_view text) {
    const std::size_t first = text.find_first_not_of(kBlank);
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::optional<std::int64_t> integer_of(std::string_view text, int base) {
    std::int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value, base);
    if (error != std::errc() || stop != end) return std::nullopt;
    return value;
}

std::optional<double> number_of(std::string_view text) {
    double value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end || !std::isfinite(value)) return std::nullopt;
    return value;
}

std::string printable(std::string_view text) {
    std::string out(text);
    for (char& c : out) {
        if (c < ' ' || c > '~') c = '?';
    }
    return out;
}

std::string shown(std::string_view text) {
    return "'" + printable(text.substr(0, kMostShown)) + (text.size() > kMostShown ? "...'" : "'");
}

std::string line_place(const std::string& file, std::size_t line_index) {
    return file + ": line " + std::to_string(line_index + 1);
}

std::string range_text(const IntegerRange& range) {
    return "an integer from " + std::to_string(range.low) + " to " + std::to_string(range.high);
}

}  // namespace orrery::topologies
