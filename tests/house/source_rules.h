// The rules of the house, as functions of (path, text), so that the tests can show them a file that breaks one.
#pragma once

#include <string>
#include <vector>

namespace orrery::house {

struct SourceFile {
    std::string path;  // relative to the repository root, with '/'
    std::string text;
    [[nodiscard]] bool is_header() const;
};

/// Every tracked-looking .h, .cpp, .cuh and .cu under the repository root, sorted by path; build folders and dot
/// folders are left out.
[[nodiscard]] std::vector<SourceFile> read_sources(const std::string& root);

/// The room a path belongs to: "core", "sim/program", "tests" …; "" when it lies in no room.
[[nodiscard]] std::string room_of(const std::string& path);

/// Whether sources of room `from` may include headers of room `to`.
[[nodiscard]] bool may_include(const std::string& from, const std::string& to);

struct Include {
    int line = 0;
    bool quoted = false;
    std::string target;
};
[[nodiscard]] std::vector<Include> includes_of(const std::string& text);

/// The text with comments replaced by spaces and, when asked, the content of string and character literals too; line
/// breaks stay.
[[nodiscard]] std::string without_comments(const std::string& text, bool without_literals);

// Each returns its violations as "path:line: what is wrong".
[[nodiscard]] std::vector<std::string> check_include_edges(const SourceFile& file);
[[nodiscard]] std::vector<std::string> check_tidiness(const SourceFile& file);
/// Of functions outside of tests, from the first line of the declaration to the closing brace.
[[nodiscard]] std::vector<std::string> check_function_lengths(const SourceFile& file);

/// Over all files at once: a header that includes CUDA, NCCL, MPI, Boost or JSON, itself or through another header of
/// ours, is private: only files of its own folder, and tests, may include it.
[[nodiscard]] std::vector<std::string> check_foreign_types(const std::vector<SourceFile>& files);

inline constexpr int kMaximumLines = 600, kMaximumTestLines = 700;
inline constexpr int kMaximumFunctionLines = 70;

}  // namespace orrery::house
