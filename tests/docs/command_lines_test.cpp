// Every command line in the pages and the help parses, every option that they name exists, and docs/commands.md
// describes all options.
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "cli/command_line.h"
#include "core/error.h"
#include "tests/docs/pages.h"

namespace orrery::docs {
namespace {

/// The error in the words after "orrery", or "". A command line that is not `whole` may lack required options.
std::string wrong_in(std::vector<std::string> words, bool whole) {
    CLI::App app;
    cli::Action chosen;
    cli::add_commands(app, chosen);
    std::reverse(words.begin(), words.end());  // the order that CLI11 expects
    try {
        app.parse(words);
        cli::check_values(app);
    } catch (const CLI::ParseError& error) {
        const bool only_lacks = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr ||
                                dynamic_cast<const CLI::RequiresError*>(&error) != nullptr ||
                                dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr;
        if (std::string unknown = cli::about_unknown_word(app); !unknown.empty()) return unknown;
        if (error.get_exit_code() != 0 && (whole || !only_lacks)) return error.what();
    } catch (const InputError& error) {
        return error.what();
    }
    return "";
}

/// The words after "orrery", up to a redirection or pipe.
std::vector<std::string> words_after_orrery(const std::string& line) {
    std::istringstream stream(line);
    std::vector<std::string> words;
    for (std::string word; stream >> word && word != ">" && word != "|";) words.push_back(word);
    words.erase(words.begin());
    return words;
}

/// Removes the brackets around optional words: `orrery validate PLAN… [--each]`.
std::string without_brackets(std::string text) {
    std::erase_if(text, [](char c) { return c == '[' || c == ']'; });
    return text;
}

TEST(CommandLines, AllInThePagesParse) {
    std::size_t known = 0;
    for (const std::string& path : page_paths()) {
        const Page page = read_page_of_root(path);
        const auto check = [&](int line, const std::string& text, bool whole) {
            if (text != "orrery" && !text.starts_with("orrery ")) return;
            EXPECT_EQ(wrong_in(words_after_orrery(text), whole), "") << path << ":" << line << ": " << text;
            ++known;
        };
        for (const Block& block : page.blocks) {
            for (const Command& command : block.commands) check(command.line, command.text(), true);
        }
        for (const CodeSpan& span : page.spans) {
            if (span.text != "orrery") check(span.line, without_brackets(span.text), false);
        }
    }
    EXPECT_GT(known, 60U);
}

TEST(CommandLines, WrongOnesAreReported) {
    EXPECT_EQ(wrong_in({"models", "gpt2"}, true), "");
    EXPECT_EQ(wrong_in({"--help"}, true), "");
    EXPECT_NE(wrong_in({"modles"}, true), "");
    EXPECT_NE(wrong_in({"models", "--jsno"}, false), "");
    EXPECT_NE(wrong_in({"plan", "--tp", "two"}, false), "");
    EXPECT_NE(wrong_in({"plan", "--tp", "2"}, true), "") << "the model is missing";
    EXPECT_EQ(wrong_in({"plan", "--tp", "2"}, false), "");
    EXPECT_NE(wrong_in({"plan", "--tp", "2", "--frist"}, false), "");
    EXPECT_NE(wrong_in({"calibrate", "--check", "--from", "x"}, true), "") << "the options exclude each other";
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
    std::vector<const CLI::App*> commands;
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
        commands.push_back(command);
        for (const CLI::App* inner : commands_of(*command)) commands.push_back(inner);
    }
    return commands;
}

TEST(CommandLines, AllInTheHelpParse) {
    CLI::App app;
    cli::Action chosen;
    cli::add_commands(app, chosen);
    static const std::regex example("[a-zA-Z' ]+: (orrery [^\n]+)");
    std::size_t known = 0;
    for (const CLI::App* command : commands_of(app)) {
        const std::string footer = command->get_footer();
        for (auto it = std::sregex_iterator(footer.begin(), footer.end(), example); it != std::sregex_iterator();
             ++it) {
            EXPECT_EQ(wrong_in(words_after_orrery((*it)[1]), true), "") << (*it)[1];
            ++known;
        }
    }
    EXPECT_GT(known, 15U);
}

/// The long names of all public options.
std::set<std::string> options_of(const CLI::App& command) {
    std::set<std::string> names;
    for (const CLI::Option* option : command.get_options()) {
        if (option->get_group().empty()) continue;  // hidden options
        for (const std::string& name : option->get_lnames()) names.insert("--" + name);
    }
    return names;
}

/// The options named in a text.
std::set<std::string> options_in(const std::string& text) {
    static const std::regex option("--[a-z][-a-z0-9]*");
    std::set<std::string> names;
    for (auto it = std::sregex_iterator(text.begin(), text.end(), option); it != std::sregex_iterator(); ++it) {
        names.insert(it->str());
    }
    return names;
}

/// Options of other programs that the pages may name: Slurm's, and those of ./dev.
std::set<std::string> options_of_others() {
    std::set<std::string> names{"--gpus-per-node", "--kill-on-bad-exit", "--mpi", "--signal"};
    names.merge(options_in(read_text_file((kRoot / "dev").string())));
    return names;
}

TEST(Options, ThoseNamedInPagesExist) {
    CLI::App app;
    cli::Action chosen;
    cli::add_commands(app, chosen);
    std::set<std::string> known = options_of(app);
    for (const CLI::App* command : commands_of(app)) known.merge(options_of(*command));
    known.merge(options_of_others());
    for (const std::string& path : page_paths()) {
        for (const CodeSpan& span : read_page_of_root(path).spans) {
            for (const std::string& name : options_in(span.text)) {
                EXPECT_TRUE(known.contains(name))
                    << path << ":" << span.line << ": `" << span.text << "` names " << name;
            }
        }
    }
}

/// The section of docs/commands.md whose heading names the command.
std::string section_about(const std::string& command) {
    const Page page = read_page_of_root("docs/commands.md");
    const std::regex heading("## [^:]*\\b" + command + "\\b[^:]*:.*");
    std::string section;
    bool inside = false;
    for (const std::string& line : page.lines) {
        if (line.starts_with("## ")) inside = std::regex_match(line, heading);
        if (inside) section += line + "\n";
    }
    return section;
}

TEST(Options, AreDescribedWithTheirCommand) {
    CLI::App app;
    cli::Action chosen;
    cli::add_commands(app, chosen);
    for (const CLI::App* command : commands_of(app)) {
        const bool is_inner = command->get_parent() != &app;
        const std::string section = section_about((is_inner ? command->get_parent() : command)->get_name());
        EXPECT_NE(section, "") << "docs/commands.md has no section about " << command->get_name();
        const std::set<std::string> described = options_in(section);
        for (const std::string& option : options_of(*command)) {
            if (option == "--help" || option == "--json") continue;  // the same for every command
            EXPECT_TRUE(described.contains(option))
                << "docs/commands.md does not describe orrery " << command->get_name() << " " << option;
        }
    }
}

}  // namespace
}  // namespace orrery::docs
