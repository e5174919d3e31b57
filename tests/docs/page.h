// Parses a page of Markdown for the orrery commands that it shows.
//
// In a code block (four spaces, or ```), lines that begin with "$ " are commands, and the lines below each command are
// its output. A mark, which is a comment before the block, says how the outputs are shown. Without a mark, each
// command's whole output is shown, and a command without output is not run:
//
//     <!-- output: kept (REASON) -->   not regenerated: a measurement, or it needs a file or machine that tests lack
//     <!-- output: none -->            the commands are run, but their output is not shown
//     <!-- output: all -->             the whole output, as without a mark, even if the page does not show any yet
//     <!-- output: PART, PART, … -->   these lines, in this order; each gap is a line "…"
//
// PART is `first N`, `last N`, `line "TEXT"`, `N from "TEXT"` (N lines, from the next line that begins with TEXT after
// its indentation) or `paragraph "TEXT"` (from such a line to the next empty one). With parts, or alone, a mark may
// have `width N` (longer lines are cut between words) and `exit code N` (default 0).
//
// `$ cat FILE` shows the content of a file, which is written for the commands after it.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace orrery::docs {

/// The message begins with the page's path and the line.
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
    bool given = false;  // the page has a mark
    std::string kept;    // why the outputs are not regenerated; empty: they are
    bool none = false;
    int exit_code = 0;
    int width = 0;            // 0: lines are not cut
    std::vector<Part> parts;  // empty: the whole output
};

struct Command {
    int line = 0;                     // of the page, from 1
    std::vector<std::string> typed;   // the command's lines on the page, including continuation lines
    std::vector<std::string> output;  // the output that the page shows
    /// The command in one line, without "$ " and without a comment after "#".
    [[nodiscard]] std::string text() const;
    /// The words of text(). Redirections and pipes are words, too.
    [[nodiscard]] std::vector<std::string> words() const;
};

/// A block of commands: the lines [begin, end) of a page, from 0.
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
    std::string path;  // as shown in messages
    std::vector<std::string> lines;
    std::vector<Block> blocks;
    std::vector<CodeSpan> spans;  // `code` in the prose
    [[nodiscard]] std::string text() const;
};

/// Throws PageError for a mark that is not understood or is not followed by a block of commands.
[[nodiscard]] Page read_page(const std::string& path, const std::string& text);

}  // namespace orrery::docs
