// The house rules as functions of (path, text), so that tests can apply them to examples that break them.
#pragma once

#include <string>
#include <vector>

namespace orrery::house {

struct SourceFile {
    std::string path;  // relative to the repository root, with '/'
    std::string text;
    [[nodiscard]] bool is_header() const;
};

/// Every .h, .cpp, .cuh and .cu file under the repository root, sorted by path, except in build and dot folders.
[[nodiscard]] std::vector<SourceFile> read_sources(const std::string& root);

/// The room (component) that a path belongs to: "core", "sim/program", "tests", ...; "" if it belongs to none.
[[nodiscard]] std::string room_of(const std::string& path);

/// Whether sources of room `from` may include headers of room `to`.
[[nodiscard]] bool may_include(const std::string& from, const std::string& to);

struct Include {
    int line = 0;
    bool quoted = false;
    std::string target;
};
[[nodiscard]] std::vector<Include> includes_of(const std::string& text);

/// The text with comments replaced by spaces, and literals too if `without_literals`; line breaks stay.
[[nodiscard]] std::string without_comments(const std::string& text, bool without_literals);

// The checks return violations as "path:line: what is wrong".
[[nodiscard]] std::vector<std::string> check_include_edges(const SourceFile& file);
[[nodiscard]] std::vector<std::string> check_tidiness(const SourceFile& file);
/// Length of functions outside tests, from the first line of the declaration to the closing brace.
[[nodiscard]] std::vector<std::string> check_function_lengths(const SourceFile& file);

/// A header that includes CUDA, NCCL, MPI, Boost or JSON headers, directly or through another of our headers, is
/// private: only files of its own folder, and tests, may include it.
[[nodiscard]] std::vector<std::string> check_foreign_types(const std::vector<SourceFile>& files);

inline constexpr int kMaximumLines = 600, kMaximumTestLines = 700;
inline constexpr int kMaximumFunctionLines = 70;

}  // namespace orrery::house
