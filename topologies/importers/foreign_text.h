// Shared by the importers of foreign text formats: limits against hostile input, strict parsing of numbers, and notes
// about content that was not used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_reader.h"

namespace orrery::topologies {

/// Largest foreign file that is read: far above ibnetdiscover's output for a fabric of 100,000 ports.
inline constexpr std::size_t kMostForeignBytes = std::size_t{64} << 20;
inline constexpr std::size_t kMostLineBytes = std::size_t{1} << 20;
/// Most nodes, switches or links that a foreign file may describe.
inline constexpr std::int64_t kMostForeignItems = std::int64_t{1} << 20;

/// What a reader ignored, assumed or inferred, in the order of the file. Printable, without duplicates, at most a
/// hundred.
class Notes {
  public:
    void add(const std::string& text);
    [[nodiscard]] const std::vector<std::string>& list() const { return list_; }

  private:
    std::vector<std::string> list_;
};

/// The file's bytes. Throws InputError naming the file when it cannot be read, is no regular file or is too large.
[[nodiscard]] std::string read_foreign_file(const std::string& path);
/// Throws InputError naming the file when the text is too large or contains a NUL, which no text format allows.
void check_foreign_text(const std::string& text, const std::string& file);

/// Lines without their line ends ("\n" or "\r\n"). Throws InputError on a line longer than kMostLineBytes.
[[nodiscard]] std::vector<std::string_view> lines_of(std::string_view text, const std::string& file);
/// Words between spaces and tabs.
[[nodiscard]] std::vector<std::string_view> words_of(std::string_view line);
[[nodiscard]] std::string_view trimmed(std::string_view text);

/// The whole text as a finite number. Empty if it has spaces, a sign other than '-' or trailing text, or overflows.
[[nodiscard]] std::optional<std::int64_t> integer_of(std::string_view text, int base = 10);
[[nodiscard]] std::optional<double> number_of(std::string_view text);

/// Replaces control characters and everything outside ASCII by '?': foreign names go to terminals and into our files.
[[nodiscard]] std::string printable(std::string_view text);
/// The text as errors show it: quoted, printable, at most 64 bytes.
[[nodiscard]] std::string shown(std::string_view text);
/// "FILE: line N"
[[nodiscard]] std::string line_place(const std::string& file, std::size_t line_index);
/// "an integer from LOW to HIGH"
[[nodiscard]] std::string range_text(const IntegerRange& range);

}  // namespace orrery::topologies
