// A page of Markdown, read for the commands of orrery that it shows.
//
// A code block (four spaces, or ```) whose lines begin with "$ " shows what somebody types, and below each what is
// printed. A comment before the block says what its outputs are; without one a command's whole output stands below it,
// and a command with nothing below it is only to type:
//
//     <!-- output: kept (REASON) -->   not made again: measured here, or of a file or a machine that tests lack
//     <!-- output: none -->            the commands work; what they print is not shown
//     <!-- output: all -->             the whole output, as without a mark, also where nothing is shown yet
//     <!-- output: PART, PART, … -->   these lines, in this order; each gap is a line "…"
//
// PART is `first N`, `last N`, `line "TEXT"`, `N from "TEXT"` (the next line that begins with TEXT, its indentation
// apart, and those after it) or `paragraph "TEXT"` (from such a line to the next empty one). Beside parts, or alone,
// stand `width N` (longer lines are cut between words) and `exit code N` (0 unless said).
//
// `$ cat FILE` states a file, which the commands below it find.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace orrery::docs {

/// Its message begins with the page's path and the line.
struct PageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct Part {
    enum class Kind { first, last, from, paragraph };
    Kind kind = Kind::first;
    int lines = 1;
    std::string text;
};

struct Mark {
    bool given = false;  // there is a comment
    std::string kept;    // why the outputs are not made again; empty: they are
    bool none = false;
    int exit_code = 0;
    int width = 0;            // 0: lines are not cut
    std::vector<Part> parts;  // none: the whole output
};

struct Command {
    int line = 0;                     // of the page, from 1
    std::vector<std::string> typed;   // as they stand, continuation lines too
    std::vector<std::string> output;  // what the page shows below
    /// What is typed, in one line, without "$ " and a comment behind "#".
    [[nodiscard]] std::string text() const;
    /// The words of it. Redirections and pipes are words, too.
    [[nodiscard]] std::vector<std::string> words() const;
};

/// The lines [begin, end) of a page, from 0, that show commands: whole but for their indentation.
struct Block {
    std::size_t begin = 0, end = 0;
    std::string indentation;
    Mark mark;
    std::vector<Command> commands;
};

struct CodeSpan {
    int line = 0;
    std::string text;
};

struct Page {
    std::string path;  // as messages name it
    std::vector<std::string> lines;
    std::vector<Block> blocks;
    std::vector<CodeSpan> spans;  // `code` in the prose
    [[nodiscard]] std::string text() const;
};

/// Throws PageError where a mark says what nobody understands, or stands before no block of commands.
[[nodiscard]] Page read_page(const std::string& path, const std::string& text);

}  // namespace orrery::docs
