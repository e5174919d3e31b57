// Reading whole files and replacing them without ever leaving a half-written one under the final name.
#pragma once

#include <cstdint>
#include <string>

namespace orrery {

/// Of a file that is read whole, unless its reader says otherwise.
inline constexpr std::int64_t kLargestTextFile = std::int64_t{256} << 20;

/// The bytes of a file or a pipe. Throws InputError naming the path when it cannot be read, is a folder or a device, or
/// holds more than `most_bytes`.
[[nodiscard]] std::string read_file(const std::string& path, std::int64_t most_bytes);
/// The same of text: without a byte order mark of UTF-8.
[[nodiscard]] std::string read_text_file(const std::string& path, std::int64_t most_bytes = kLargestTextFile);

/// Writes to a temporary name beside `path`, flushes it to disk and renames. Throws JobError naming the path and the
/// operating system's reason; the old file, if any, is intact then.
void write_file_atomically(const std::string& path, const std::string& content);

/// Proves that write_file_atomically(path) can work, by making its temporary file and removing it. Throws InputError
/// naming the path and the operating system's reason.
void check_writable(const std::string& path);

/// "did you mean 'X'?" material: the candidate with the smallest edit distance, or "" when none is near.
template <typename Candidates>
[[nodiscard]] std::string nearest_name(const std::string& name, const Candidates& candidates);

[[nodiscard]] int edit_distance(const std::string& a, const std::string& b);

template <typename Candidates>
std::string nearest_name(const std::string& name, const Candidates& candidates) {
    std::string best;
    int best_distance = static_cast<int>(name.size()) / 2 + 1;
    for (const auto& candidate : candidates) {
        const int distance = edit_distance(name, candidate);
        if (distance < best_distance) {
            best_distance = distance;
            best = candidate;
        }
    }
    return best;
}

}  // namespace orrery
