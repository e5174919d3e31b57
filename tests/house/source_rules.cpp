#include "tests/house/source_rules.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string_view>

namespace orrery::house {
namespace {

namespace fs = std::filesystem;

/// The rooms that each room may include besides itself: the transitive closure of the table in docs/architecture.md.
const std::map<std::string, std::set<std::string>>& allowed_edges() {
    static const std::set<std::string> program = {"core", "models", "topologies", "sim/program"};
    static const std::set<std::string> engine = {"core",     "models",      "topologies",  "sim/program",
                                                 "sim/cost", "sim/sharing", "sim/network", "sim/network/algorithms"};
    static const std::set<std::string> planner = {"core",      "models",      "topologies",  "sim/program",
                                                  "sim/cost",  "sim/sharing", "sim/network", "sim/network/algorithms",
                                                  "sim/engine"};
    static const std::set<std::string> everything = {"core",        "models",       "topologies",
                                                     "kernels",     "sim/program",  "sim/cost",
                                                     "sim/sharing", "sim/network",  "sim/network/algorithms",
                                                     "sim/engine",  "sim/planner",  "sim/published",
                                                     "sim/refine",  "sim/capacity", "exec",
                                                     "reports",     "cli",          "tests"};
    static const std::map<std::string, std::set<std::string>> table = {
        {"core", {}},
        {"models", {"core"}},
        {"topologies", {"core"}},
        {"kernels", {"core"}},
        {"sim/program", {"core", "models", "topologies"}},
        {"sim/cost", program},
        {"sim/sharing", {"core"}},
        {"sim/network/algorithms", program},
        {"sim/network", {"core", "models", "topologies", "sim/program", "sim/sharing", "sim/network/algorithms"}},
        {"sim/engine", engine},
        {"sim/planner", planner},
        {"sim/published", program},
        {"sim/refine", planner},
        {"sim/capacity", program},
        {"exec", {"core", "models", "topologies", "kernels", "sim/program"}},
        {"reports", program},
        {"cli",
         {"core", "models", "topologies", "kernels", "sim/program", "sim/cost", "sim/sharing", "sim/network",
          "sim/network/algorithms", "sim/engine", "sim/planner", "sim/published", "sim/refine", "sim/capacity", "exec",
          "reports"}},
        {"tests", everything},
    };
    return table;
}

std::string at(const SourceFile& file, int line, const std::string& what) {
    return file.path + ":" + std::to_string(line) + ": " + what;
}

bool starts_with(const std::string& text, const std::string& prefix) {
    return text.compare(0, prefix.size(), prefix) == 0;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

/// An expression, and texts of which every match contains one: looking for these first takes a tenth of the time.
struct Pattern {
    std::regex expression;
    std::vector<std::string_view> texts;

    [[nodiscard]] bool is_in(const std::string& line) const {
        const auto has = [&](std::string_view text) { return line.find(text) != std::string::npos; };
        return std::any_of(texts.begin(), texts.end(), has) && std::regex_search(line, expression);
    }
};

void report_matches(const SourceFile& file, const std::vector<std::string>& lines, const Pattern& pattern,
                    const std::string& what, std::vector<std::string>& violations) {
    for (std::size_t i = 0; i < lines.size(); ++i) {
        if (pattern.is_in(lines[i])) violations.push_back(at(file, static_cast<int>(i) + 1, what));
    }
}

/// Copies the comment or literal that starts at `i`, or blanks it; returns the index after it, or `i` if none starts
/// there.
std::size_t blank_token(const std::string& text, std::size_t i, bool without_literals, std::string& out) {
    const auto blank_until = [&](std::size_t end) {
        for (; i < end; ++i) out.push_back(text[i] == '\n' ? '\n' : ' ');
    };
    const auto end_of = [&](const std::string& closing, std::size_t from) {
        const std::size_t found = text.find(closing, from);
        return found == std::string::npos ? text.size() : found + closing.size();
    };
    std::size_t end = i;
    if (text.compare(i, 2, "//") == 0) {
        end = std::min(text.find('\n', i), text.size());
        blank_until(end);
        return end;
    }
    if (text.compare(i, 2, "/*") == 0) {
        end = end_of("*/", i + 2);
        blank_until(end);
        return end;
    }
    if (text.compare(i, 2, "R\"") == 0) {
        const std::size_t open = text.find('(', i);
        if (open == std::string::npos) return i;
        end = end_of(")" + text.substr(i + 2, open - i - 2) + "\"", open);
    } else if (text[i] == '"' ||
               (text[i] == '\'' && (i == 0 || !std::isalnum(static_cast<unsigned char>(text[i - 1]))))) {
        // A quote after a digit or letter is a digit separator, not a literal.
        end = i + 1;
        while (end < text.size() && text[end] != text[i] && text[end] != '\n') end += text[end] == '\\' ? 2 : 1;
        end = std::min(end + 1, text.size());
    }
    if (without_literals) {
        blank_until(end);
    } else {
        out.append(text, i, end - i);
    }
    return end;
}

/// Blanks preprocessor lines, whose braces need not be balanced.
std::string without_directives(std::string code) {
    bool directive = false;
    std::size_t begin = 0;
    while (begin < code.size()) {
        const std::size_t end = std::min(code.find('\n', begin), code.size());
        const std::size_t first = code.find_first_not_of(" \t", begin);
        directive = directive || (first < end && code[first] == '#');
        const bool goes_on = end > begin && code[end - 1] == '\\';
        if (directive)
            std::fill(code.begin() + static_cast<std::ptrdiff_t>(begin),
                      code.begin() + static_cast<std::ptrdiff_t>(end), ' ');
        directive = directive && goes_on;
        begin = end + 1;
    }
    return code;
}

enum class Scope { names, type, function, value };

/// What a brace outside functions opens, from the declaration before it.
Scope scope_of(const std::string& declaration) {
    static const std::regex names(R"(\b(namespace|extern)\b[^(]*$)");
    static const std::regex type(R"(\b(class|struct|union|enum)\b)");
    static const std::regex alignment(R"(\balignas\s*\([^)]*\))");
    const std::string plain = std::regex_replace(declaration, alignment, "");
    if (std::regex_search(plain, names)) return Scope::names;
    if (plain.find('(') == std::string::npos) return std::regex_search(plain, type) ? Scope::type : Scope::value;
    const std::size_t last = plain.find_last_not_of(" \t\n");
    return plain[last] == '=' ? Scope::value : Scope::function;
}

/// Where the declaration after `from` begins: skips white space and access specifiers.
std::size_t begin_of_declaration(const std::string& code, std::size_t from) {
    static const std::regex access(R"(^(public|private|protected)\s*:)");
    while (true) {
        from = std::min(code.find_first_not_of(" \t\n", from), code.size());
        std::smatch match;
        const std::string word = code.substr(from, 16);
        if (!std::regex_search(word, match, access)) return from;
        from += static_cast<std::size_t>(match.length());
    }
}

}  // namespace

bool SourceFile::is_header() const {
    return fs::path(path).extension() == ".h" || fs::path(path).extension() == ".cuh";
}

std::vector<SourceFile> read_sources(const std::string& root) {
    std::vector<SourceFile> files;
    auto walk = fs::recursive_directory_iterator(root);
    for (const fs::directory_entry& entry : walk) {
        const std::string name = entry.path().filename().string();
        if (entry.is_directory() && (name == "build" || name[0] == '.')) {
            walk.disable_recursion_pending();
            continue;
        }
        const std::string extension = entry.path().extension().string();
        static const std::set<std::string> kept = {".h", ".cpp", ".cuh", ".cu"};
        if (!entry.is_regular_file() || kept.count(extension) == 0) continue;
        std::ifstream stream(entry.path(), std::ios::binary);
        std::ostringstream text;
        text << stream.rdbuf();
        if (!stream) throw std::runtime_error("cannot read " + entry.path().string());
        files.push_back({fs::relative(entry.path(), root).generic_string(), text.str()});
    }
    std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
    return files;
}

std::string room_of(const std::string& path) {
    std::string innermost;
    for (const auto& [room, edges] : allowed_edges()) {
        if (starts_with(path, room + "/") && room.size() > innermost.size()) innermost = room;
    }
    return innermost;
}

bool may_include(const std::string& from, const std::string& to) {
    if (from == to) return true;
    const auto found = allowed_edges().find(from);
    return found != allowed_edges().end() && found->second.count(to) > 0;
}

std::vector<Include> includes_of(const std::string& text) {
    static const std::regex pattern(R"re(^\s*#\s*include\s*(["<])([^">]+)[">])re");
    std::vector<Include> includes;
    const std::vector<std::string> lines = lines_of(without_comments(text, false));
    for (std::size_t i = 0; i < lines.size(); ++i) {
        std::smatch match;
        if (lines[i].find("include") != std::string::npos && std::regex_search(lines[i], match, pattern)) {
            includes.push_back({static_cast<int>(i) + 1, match[1].str() == "\"", match[2].str()});
        }
    }
    return includes;
}

std::string without_comments(const std::string& text, bool without_literals) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t next = blank_token(text, i, without_literals, out);
        if (next == i) {
            out.push_back(text[i]);
            ++i;
        } else {
            i = next;
        }
    }
    return out;
}

std::vector<std::string> check_include_edges(const SourceFile& file) {
    std::vector<std::string> violations;
    const std::string from = room_of(file.path);
    if (from.empty()) violations.push_back(at(file, 1, "the file belongs to no room"));
    for (const Include& include : includes_of(file.text)) {
        const std::string to = room_of(include.target);
        if (to.empty()) {
            if (include.quoted) {
                violations.push_back(
                    at(file, include.line, "\"" + include.target + "\" is not a path from the repository root"));
            }
            continue;
        }
        if (!include.quoted) violations.push_back(at(file, include.line, "our own headers are included with quotes"));
        if (!from.empty() && !may_include(from, to)) {
            violations.push_back(at(file, include.line, from + " may not include " + to + " (" + include.target + ")"));
        }
    }
    return violations;
}

std::vector<std::string> check_foreign_types(const std::vector<SourceFile>& files) {
    static const std::regex foreign("^(nlohmann/|boost/|mpi\\.h|cuda|cublas|nccl|pugi|yaml-cpp/)");
    const auto folder_of = [](const std::string& path) { return path.substr(0, path.rfind('/')); };
    std::map<std::string, std::vector<Include>> includes;
    for (const SourceFile& file : files) includes[file.path] = includes_of(file.text);
    std::set<std::string> private_headers;
    for (bool grown = true; grown;) {
        grown = false;
        for (const SourceFile& file : files) {
            if (!file.is_header()) continue;
            for (const Include& include : includes.at(file.path)) {
                if (std::regex_search(include.target, foreign) || private_headers.count(include.target) > 0) {
                    grown = private_headers.insert(file.path).second || grown;
                }
            }
        }
    }
    std::vector<std::string> violations;
    for (const SourceFile& file : files) {
        if (room_of(file.path) == "tests") continue;
        for (const Include& include : includes.at(file.path)) {
            if (private_headers.count(include.target) > 0 && folder_of(include.target) != folder_of(file.path)) {
                violations.push_back(
                    at(file, include.line, include.target + " holds foreign types and is private to its folder"));
            }
        }
    }
    return violations;
}

std::vector<std::string> check_function_lengths(const SourceFile& file) {
    struct Brace {
        Scope scope{};
        std::size_t begin = 0;  // of its declaration
    };
    std::vector<std::string> violations;
    if (starts_with(file.path, "tests/")) return violations;
    const std::string code = without_directives(without_comments(file.text, true));
    const auto line_of = [&](std::size_t place) {
        return static_cast<int>(std::count(code.begin(), code.begin() + static_cast<std::ptrdiff_t>(place), '\n')) + 1;
    };
    std::vector<Brace> open;
    std::size_t inside = 0;  // open braces of functions and values, including nested ones
    std::size_t begin = 0;   // of the declaration that the next brace belongs to
    for (std::size_t i = 0; i < code.size(); ++i) {
        if (code[i] == ';') {
            begin = i + 1;
        } else if (code[i] == '{') {
            if (inside == 0) begin = begin_of_declaration(code, begin);
            const Scope scope = inside > 0 ? Scope::value : scope_of(code.substr(begin, i - begin));
            if (scope == Scope::function || scope == Scope::value) ++inside;
            open.push_back({scope, begin});
            begin = i + 1;
        } else if (code[i] == '}' && !open.empty()) {
            const Brace closed = open.back();
            open.pop_back();
            if (closed.scope == Scope::function || closed.scope == Scope::value) --inside;
            const std::size_t next = code.find_first_not_of(" \t\n", i + 1);
            // A default argument or a member initialiser: the function's body follows.
            const bool goes_on =
                next != std::string::npos && std::string_view(",){").find(code[next]) != std::string_view::npos;
            begin = goes_on ? closed.begin : i + 1;
            if (goes_on || closed.scope != Scope::function) continue;
            const int first = line_of(closed.begin), lines = line_of(i) - first + 1;
            if (lines <= kMaximumFunctionLines) continue;
            violations.push_back(at(file, first,
                                    "the function has " + std::to_string(lines) + " lines; at most " +
                                        std::to_string(kMaximumFunctionLines)));
        }
    }
    return violations;
}

std::vector<std::string> check_tidiness(const SourceFile& file) {
    static const Pattern using_namespace{std::regex(R"(\busing\s+namespace\b)"), {"namespace"}};
    static const Pattern libc_random{std::regex(R"(\b(std::rand|std::srand|srand|rand)\s*\()"), {"rand"}};
    static const Pattern shared_folder{std::regex(R"(\b(TempDir|temp_directory_path)\s*\()"),
                                       {"TempDir", "temp_directory_path"}};
    static const Pattern unordered{std::regex(R"(\bunordered_(multi)?(map|set)\b)"), {"unordered_"}};
    static const Pattern views{std::regex(R"(\bviews::\w|#include\s*<ranges>)"), {"views::", "<ranges>"}};
    static const Pattern any_number{
        std::regex(R"re((Integer|Number)Range(\s+\w+)?\s*\{\s*\}|\b(integer|number)s?(_or)?\([^,;]*,\s*\{\s*\})re"),
        {"Range", "integer", "number"}};
    static const Pattern unfinished{std::regex("\\b(TO"
                                               "DO|FIX"
                                               "ME|X"
                                               "XX)\\b"),
                                    {"TO"
                                     "DO",
                                     "FIX"
                                     "ME",
                                     "X"
                                     "XX"}};
    std::vector<std::string> violations;
    const std::vector<std::string> code = lines_of(without_comments(file.text, true));
    const std::vector<std::string> lines = lines_of(file.text);
    if (file.is_header()) {
        report_matches(file, code, using_namespace, "using namespace is not allowed in headers", violations);
        if (file.text.find("#pragma once") == std::string::npos) {
            violations.push_back(at(file, 1, "a header starts with #pragma once"));
        }
    }
    report_matches(file, code, views, "views do not compile with clang 14, which builds the fuzz targets", violations);
    report_matches(file, code, libc_random, "random numbers come from core/random.h", violations);
    if (starts_with(file.path, "sim/")) {
        report_matches(file, code, unordered, "unordered containers are not allowed in sim/", violations);
    }
    if (!starts_with(file.path, "tests/") && !starts_with(file.path, "core/json_reader.")) {
        report_matches(file, code, any_number, "numbers from files must have a range", violations);
    }
    // Tests run in parallel, so a fixed file name may be shared with another test.
    if (starts_with(file.path, "tests/") && file.path != "tests/unit/core/test_folder.h") {
        report_matches(file, code, shared_folder, "a test's files belong in its own TestFolder", violations);
    }
    report_matches(file, lines, unfinished, "unfinished work is not committed", violations);
    const int most = starts_with(file.path, "tests/") ? kMaximumTestLines : kMaximumLines;
    if (lines.size() > static_cast<std::size_t>(most)) {
        violations.push_back(
            at(file, most, "the file has " + std::to_string(lines.size()) + " lines; at most " + std::to_string(most)));
    }
    return violations;
}

}  // namespace orrery::house
