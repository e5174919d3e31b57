#include "tests/docs/shown_outputs.h"

#include <algorithm>
#include <sstream>

namespace orrery::docs {
namespace {

const std::string kEllipsis = "…";

std::string trimmed(const std::string& line) {
    const std::size_t begin = line.find_first_not_of(' ');
    return begin == std::string::npos ? "" : line.substr(begin);
}

/// The lines without trailing blanks, and without trailing empty lines.
std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
        line.erase(line.find_last_not_of(" \t\r") + 1);
        lines.push_back(line);
    }
    while (!lines.empty() && lines.back().empty()) lines.pop_back();
    return lines;
}

struct Range {
    std::size_t begin = 0, end = 0;
};

/// The lines that a part selects, from line `next` on.
Range range_of(const Part& part, const std::vector<std::string>& lines, std::size_t next) {
    const bool has_text = part.kind == Part::Kind::from || part.kind == Part::Kind::paragraph;
    std::size_t begin = next;
    while (has_text && begin < lines.size() && !trimmed(lines[begin]).starts_with(part.text)) ++begin;
    if (has_text && begin == lines.size()) {
        throw PageError("no line of the output after the parts before it begins with '" + part.text + "'");
    }
    if (part.kind == Part::Kind::paragraph) {
        std::size_t end = begin;
        while (end < lines.size() && !lines[end].empty()) ++end;
        return {begin, end};
    }
    const auto count = static_cast<std::size_t>(part.lines);
    if (const std::size_t left = lines.size() - begin; count > left) {
        throw PageError("the mark shows " + std::to_string(count) + " lines where the output has " +
                        std::to_string(left));
    }
    return part.kind == Part::Kind::last ? Range{lines.size() - count, lines.size()} : Range{begin, begin + count};
}

/// The line cut between words to at most `width` characters.
std::string cut(const std::string& line, int width) {
    int characters = 0;
    std::size_t space = 0;  // the last one that fits
    for (std::size_t i = 0; i < line.size(); ++i) {
        if (line[i] == ' ') space = i;
        const bool continues_character = (static_cast<unsigned char>(line[i]) & 0xC0U) == 0x80U;
        if (!continues_character && ++characters > width) {
            std::string kept = line.substr(0, space);
            kept.erase(kept.find_last_not_of(' ') + 1);
            return kept + " " + kEllipsis;
        }
    }
    return line;
}

/// A gap becomes a line with an ellipsis; a gap of empty lines is kept.
void close_gap(const std::vector<std::string>& lines, Range gap, std::vector<std::string>& shown) {
    for (std::size_t i = gap.begin; i < gap.end; ++i) {
        if (lines[i].empty()) continue;
        shown.push_back(std::string(lines[i].find_first_not_of(' '), ' ') + kEllipsis);
        return;
    }
    shown.insert(shown.end(), gap.end - gap.begin, "");
}

/// Why the output of a command cannot be regenerated, or "".
std::string why_not_run(const std::vector<std::string>& words) {
    const auto has = [&](const char* word) { return std::find(words.begin(), words.end(), word) != words.end(); };
    for (const std::string& word : words) {
        if (word.find_first_of("|<>;&\"'*") != std::string::npos) return "it needs a shell";
    }
    if (words.size() < 2) return "";
    const bool trains = words[1] == "run" || (words[1] == "validate" && !has("--rows") && !has("--collectives"));
    if (trains) return "it trains on this machine";
    if (words[1] == "calibrate" && !has("--check") && !has("--collectives")) return "it measures this machine, or fits";
    return "";
}

std::string at(const Page& page, int line) {
    return page.path + ":" + std::to_string(line) + ": ";
}

/// The first line that differs, as shown and as printed now.
std::string difference(const Page& page, const Command& command, const std::vector<std::string>& now) {
    std::size_t i = 0;
    while (i < now.size() && i < command.output.size() && now[i] == command.output[i]) ++i;
    const auto line = [&](const std::vector<std::string>& lines) {
        return i < lines.size() ? lines[i] : std::string("(nothing more)");
    };
    return at(page, command.line + static_cast<int>(command.typed.size() + i)) +
           "not what this command prints: " + command.text() + "\n  shown: " + line(command.output) +
           "\n  printed: " + line(now);
}

/// Regenerates the outputs of one page.
class Renewal {
  public:
    Renewal(const Page& page, const Place& place) : page_(page), place_(place) {}

    Renewed renew() {
        std::size_t done = 0;
        for (const Block& block : page_.blocks) {
            for (; done < block.begin; ++done) result_.text += page_.lines[done] + "\n";
            if (block.commands.front().typed.front().starts_with("$ ")) {
                for (const Command& command : block.commands) add(block, command);
                done = block.end;
            }
        }
        for (; done < page_.lines.size(); ++done) result_.text += page_.lines[done] + "\n";
        return std::move(result_);
    }

  private:
    void add(const Block& block, const Command& command) {
        std::vector<std::string> output = command.output;
        try {
            output = output_now(block.mark, command);
        } catch (const PageError& error) {
            result_.mistakes.push_back(at(page_, command.line) + error.what() + ": " + command.text());
        }
        if (output != command.output) result_.differences.push_back(difference(page_, command, output));
        std::vector<std::string> lines = command.typed;
        lines.insert(lines.end(), output.begin(), output.end());
        if (&command != &block.commands.back()) {
            // Empty lines before the next command belong to the page.
            const auto next = static_cast<std::size_t>((&command)[1].line) - 1;
            const auto end = static_cast<std::size_t>(command.line) - 1 + command.typed.size() + command.output.size();
            lines.insert(lines.end(), next - end, "");
        }
        for (const std::string& line : lines) {
            result_.text += (line.empty() ? "" : block.indentation + line) + "\n";
        }
    }

    std::vector<std::string> output_now(const Mark& mark, const Command& command) {
        const std::vector<std::string> words = command.words();
        if (!mark.kept.empty() || words.empty()) return command.output;
        if (words.size() == 2 && words[0] == "cat") {
            std::string text;
            for (const std::string& line : command.output) text += line + "\n";
            place_.write(words[1], text);
        }
        if (words[0] != "orrery") return command.output;
        if (command.output.empty() && !mark.given) return {};  // not run
        if (const std::string why = why_not_run(words); !why.empty()) {
            throw PageError("the output of this command cannot be regenerated (" + why +
                            "); put <!-- output: kept (REASON) --> before its block");
        }
        const Printed printed = place_.run({words.begin() + 1, words.end()});
        if (printed.exit_code != mark.exit_code) {
            throw PageError("ended with exit code " + std::to_string(printed.exit_code) + " instead of " +
                            std::to_string(mark.exit_code) + ", and printed '" + printed.text + "'");
        }
        return mark.none ? std::vector<std::string>{} : excerpt(printed.text, mark);
    }

    const Page& page_;
    const Place& place_;
    Renewed result_;
};

}  // namespace

std::vector<std::string> excerpt(const std::string& output, const Mark& mark) {
    const std::vector<std::string> lines = lines_of(output);
    std::vector<std::string> shown;
    std::size_t next = 0;
    const auto take = [&](Range range) {
        close_gap(lines, {next, range.begin}, shown);
        for (std::size_t i = range.begin; i < range.end; ++i) {
            shown.push_back(mark.width > 0 ? cut(lines[i], mark.width) : lines[i]);
        }
        next = range.end;
    };
    for (const Part& part : mark.parts) take(range_of(part, lines, next));
    if (mark.parts.empty()) take({0, lines.size()});
    close_gap(lines, {next, lines.size()}, shown);
    return shown;
}

Renewed renew(const Page& page, const Place& place) {
    return Renewal(page, place).renew();
}

}  // namespace orrery::docs
