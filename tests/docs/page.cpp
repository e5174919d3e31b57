#include "tests/docs/page.h"

#include <optional>
#include <regex>
#include <sstream>

namespace orrery::docs {
namespace {

constexpr const char* kIndentation = "    ";

bool is_blank(const std::string& line) {
    return line.find_first_not_of(" \t") == std::string::npos;
}

[[noreturn]] void fail(const std::string& path, std::size_t line, const std::string& what) {
    throw PageError(path + ":" + std::to_string(line) + ": " + what);
}

/// Splits a mark at its commas, except within quotes or brackets.
std::vector<std::string> separated(const std::string& text) {
    std::vector<std::string> parts{""};
    bool quoted = false;
    int depth = 0;
    for (const char c : text) {
        if (c == '"') quoted = !quoted;
        if (c == '(' && !quoted) ++depth;
        if (c == ')' && !quoted) --depth;
        if (c == ',' && !quoted && depth == 0) {
            parts.emplace_back();
        } else if (c != ' ' || !parts.back().empty()) {
            parts.back() += c;
        }
    }
    for (std::string& part : parts) part.erase(part.find_last_not_of(' ') + 1);
    return parts;
}

/// Adds one part of a mark; returns whether it was understood.
bool add_to_mark(Mark& mark, const std::string& said) {
    static const std::regex kept(R"(kept \((.+)\))"), count(R"((first|last|width|exit code) ([0-9]{1,6}))"),
        line("line \"(.+)\""), from("([0-9]{1,6}) from \"(.+)\""), paragraph("paragraph \"(.+)\"");
    std::smatch match;
    if (said == "none" || said == "all") {
        mark.none = said == "none";
    } else if (std::regex_match(said, match, kept)) {
        mark.kept = match[1];
    } else if (std::regex_match(said, match, count)) {
        const int number = std::stoi(match[2]);
        if (match[1] == "first") mark.parts.push_back({Part::Kind::first, number, ""});
        if (match[1] == "last") mark.parts.push_back({Part::Kind::last, number, ""});
        if (match[1] == "width") mark.width = number;
        if (match[1] == "exit code") mark.exit_code = number;
    } else if (std::regex_match(said, match, line)) {
        mark.parts.push_back({Part::Kind::from, 1, match[1]});
    } else if (std::regex_match(said, match, from)) {
        mark.parts.push_back({Part::Kind::from, std::stoi(match[1]), match[2]});
    } else if (std::regex_match(said, match, paragraph)) {
        mark.parts.push_back({Part::Kind::paragraph, 0, match[1]});
    } else {
        return false;
    }
    return true;
}

/// The mark in a line; empty if the line is not a mark.
std::optional<Mark> mark_in(const std::string& path, std::size_t number, const std::string& line) {
    const std::string opening = "<!-- output:", closing = "-->";
    if (!line.starts_with(opening)) return std::nullopt;
    if (!line.ends_with(closing)) fail(path, number, "the mark must end on its line");
    Mark mark{.given = true};
    for (const std::string& said :
         separated(line.substr(opening.size(), line.size() - opening.size() - closing.size()))) {
        if (!add_to_mark(mark, said)) {
            fail(path, number,
                 "a mark says '" + said +
                     "'; allowed: kept (REASON), none, all, first N, last N, line \"TEXT\", "
                     "N from \"TEXT\", paragraph \"TEXT\", width N, exit code N");
        }
    }
    return mark;
}

/// Parses the lines of a code block, without their indentation. Empty if no line is a command.
std::vector<Command> commands_in(const std::string& path, std::size_t begin, const std::vector<std::string>& lines) {
    std::vector<Command> commands;
    bool has_prompt = false;
    for (const std::string& line : lines) has_prompt = has_prompt || line.starts_with("$ ");
    bool continues = false;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        const bool typed = continues || (has_prompt ? lines[i].starts_with("$ ") : lines[i].starts_with("orrery "));
        if (typed && !continues) commands.push_back({.line = static_cast<int>(begin + i) + 1});
        if (typed) {
            commands.back().typed.push_back(lines[i]);
            continues = lines[i].ends_with(" \\");
        } else if (has_prompt) {
            if (commands.empty()) fail(path, begin + i + 1, "a block with commands must begin with a command");
            commands.back().output.push_back(lines[i]);
        }
    }
    for (Command& command : commands) {
        while (!command.output.empty() && command.output.back().empty()) command.output.pop_back();
    }
    return commands;
}

/// Reads a page from its first line to its last.
class Reader {
  public:
    Reader(std::string path, const std::string& text) {
        page_.path = std::move(path);
        std::istringstream stream(text);
        for (std::string line; std::getline(stream, line);) page_.lines.push_back(line);
    }

    Page read() {
        std::vector<std::string>& lines = page_.lines;
        bool after_blank = true;
        while (at_ < lines.size()) {
            if (std::optional<Mark> mark = mark_in(page_.path, at_ + 1, lines[at_])) {
                if (mark_) fail_unused();
                mark_ = std::move(mark);
                mark_line_ = at_ + 1;
                after_blank = true;
                ++at_;
            } else if (lines[at_].starts_with("```")) {
                read_fenced();
            } else if (after_blank && lines[at_].starts_with(kIndentation) && !is_blank(lines[at_])) {
                read_indented();
            } else {
                after_blank = is_blank(lines[at_]);
                if (!after_blank) read_prose();
                ++at_;
            }
        }
        if (mark_) fail_unused();
        return std::move(page_);
    }

  private:
    [[noreturn]] void fail_unused() const {
        fail(page_.path, mark_line_, "the mark is not followed by a block of commands");
    }

    void read_fenced() {
        const std::size_t begin = ++at_;
        while (at_ < page_.lines.size() && !page_.lines[at_].starts_with("```")) ++at_;
        add_block(begin, at_, "");
        ++at_;
    }

    void read_indented() {
        const std::size_t begin = at_;
        std::size_t end = at_;
        for (; at_ < page_.lines.size(); ++at_) {
            if (is_blank(page_.lines[at_])) continue;
            if (!page_.lines[at_].starts_with(kIndentation)) break;
            end = at_ + 1;
        }
        at_ = end;
        add_block(begin, end, kIndentation);
    }

    void add_block(std::size_t begin, std::size_t end, const std::string& indentation) {
        std::vector<std::string> lines;
        for (std::size_t i = begin; i < end; ++i) {
            const std::string& line = page_.lines[i];
            lines.push_back(is_blank(line) ? "" : line.substr(indentation.size()));
        }
        std::vector<Command> commands = commands_in(page_.path, begin, lines);
        if (commands.empty()) {
            if (mark_) fail_unused();
            return;
        }
        page_.blocks.push_back({begin, end, indentation, mark_.value_or(Mark{}), std::move(commands)});
        mark_.reset();
    }

    void read_prose() {
        if (mark_) fail_unused();
        static const std::regex span("`([^`]+)`");
        const std::string& line = page_.lines[at_];
        for (auto it = std::sregex_iterator(line.begin(), line.end(), span); it != std::sregex_iterator(); ++it) {
            page_.spans.push_back({static_cast<int>(at_) + 1, (*it)[1]});
        }
    }

    Page page_;
    std::size_t at_ = 0;
    std::optional<Mark> mark_;  // of the next block
    std::size_t mark_line_ = 0;
};

}  // namespace

std::string Command::text() const {
    std::string text;
    for (const std::string& part : typed) {
        text += part.ends_with(" \\") ? part.substr(0, part.size() - 1) : part;
    }
    if (text.starts_with("$ ")) text.erase(0, 2);
    if (const std::size_t comment = text.find(" #"); comment != std::string::npos) text.erase(comment);
    std::istringstream stream(text);
    std::string result;
    for (std::string word; stream >> word;) result += (result.empty() ? "" : " ") + word;
    return result;
}

std::vector<std::string> Command::words() const {
    std::istringstream stream(text());
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    return words;
}

std::string Page::text() const {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    return text;
}

Page read_page(const std::string& path, const std::string& text) {
    return Reader(path, text).read();
}

}  // namespace orrery::docs
