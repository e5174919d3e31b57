// Reads whole files, and replaces files atomically: no partial file ever has the final name.
#pragma once

#include <cstdint>
#include <string>

namespace orrery {

/// Default size limit of text files.
inline constexpr std::int64_t kLargestTextFile = std::int64_t{256} << 20;

/// The bytes of a file or a pipe. Throws InputError naming the path if it cannot be read, is a folder or a device, or
/// has more than `most_bytes`.
[[nodiscard]] std::string read_file(const std::string& path, std::int64_t most_bytes);
/// The same without a UTF-8 byte order mark.
[[nodiscard]] std::string read_text_file(const std::string& path, std::int64_t most_bytes = kLargestTextFile);

/// Writes a temporary file next to `path`, flushes it to disk and renames it. Pipes and devices are written in place.
/// Throws JobError naming the path and the operating system's reason; an old file is then unchanged.
void write_file_atomically(const std::string& path, const std::string& content);

/// Checks that write_file_atomically(path) can work by creating and removing its temporary file. Throws InputError
/// naming the path and the operating system's reason.
void check_writable(const std::string& path);

/// For "did you mean 'X'?" hints: the candidate with the smallest edit distance, or "" if none is near.
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
