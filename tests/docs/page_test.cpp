// Tests how pages are parsed, and that each kind of wrong output is reported.
#include "tests/docs/page.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/docs/shown_outputs.h"
#include "tests/unit/core/test_folder.h"

namespace orrery::docs {
namespace {

/// Regenerates a page whose commands print the texts in `outputs`, by their words.
struct MadeUpPlace {
    std::map<std::string, Printed> outputs;
    std::vector<std::string> runs;
    std::map<std::string, std::string> files;

    Renewed renew_page(const std::string& text) {
        const Place place{.run =
                              [&](const std::vector<std::string>& words) {
                                  std::string command;
                                  for (const std::string& word : words) command += (command.empty() ? "" : " ") + word;
                                  runs.push_back(command);
                                  return outputs.at(command);
                              },
                          .write = [&](const std::string& name, const std::string& content) { files[name] = content; }};
        return renew(read_page("page.md", text), place);
    }
};

const std::string kOutput = "title\n\nlinks 1\n  nic 2\n\nnotes\n  first note\n  second note\n";

std::string shown(const Mark& mark, const std::string& output = kOutput) {
    std::string text;
    for (const std::string& line : excerpt(output, mark)) text += line + "\n";
    return text;
}

TEST(Excerpt, IsTheWholeOutputUnlessPartsAreNamed) {
    EXPECT_EQ(shown({}), kOutput);
    EXPECT_EQ(shown({}, "a  \nb\n\n\n"), "a\nb\n");
}

TEST(Excerpt, ShowsPartsAndGaps) {
    using Kind = Part::Kind;
    EXPECT_EQ(shown({.parts = {{Kind::first, 1, ""}}}), "title\n…\n");
    EXPECT_EQ(shown({.parts = {{Kind::last, 1, ""}}}), "…\n  second note\n");
    EXPECT_EQ(shown({.parts = {{Kind::first, 1, ""}, {Kind::paragraph, 0, "notes"}}}),
              "title\n…\nnotes\n  first note\n  second note\n");
    EXPECT_EQ(shown({.parts = {{Kind::from, 2, "notes"}}}), "…\nnotes\n  first note\n  …\n");
    EXPECT_EQ(shown({.parts = {{Kind::first, 1, ""}, {Kind::paragraph, 0, "links"}, {Kind::paragraph, 0, "notes"}}}),
              kOutput)
        << "a gap of empty lines is kept";
    EXPECT_EQ(shown({.width = 8}, "one two three\ntwo four\n± ± ± ± ± ±\n"), "one two …\ntwo four\n± ± ± ± …\n");
}

TEST(Excerpt, MissingPartsAreErrors) {
    using Kind = Part::Kind;
    const auto message = [](Part part) {
        return message_of<PageError>([&] { (void)excerpt(kOutput, {.parts = {{Kind::first, 3, ""}, part}}); });
    };
    EXPECT_NE(message({Kind::paragraph, 0, "links"}).find("begins with 'links'"), std::string::npos)
        << "used by an earlier part";
    EXPECT_NE(message({Kind::first, 6, ""}).find("6 lines where the output has 5"), std::string::npos);
    EXPECT_NE(message({Kind::last, 6, ""}).find("6 lines where the output has 5"), std::string::npos);
    EXPECT_NE(message({Kind::from, 4, "notes"}).find("4 lines where the output has 3"), std::string::npos);
}

TEST(Page, OutputsAreRegenerated) {
    MadeUpPlace place{.outputs = {{"a --b", {"new\nlines\n"}}, {"c", {"same\n"}}}};
    const Renewed now = place.renew_page(
        "Text.\n\n    $ orrery a \\\n          --b   # why\n    old\n\n    $ orrery c\n    same\nMore.\n");
    EXPECT_EQ(
        now.text,
        "Text.\n\n    $ orrery a \\\n          --b   # why\n    new\n    lines\n\n    $ orrery c\n    same\nMore.\n");
    EXPECT_TRUE(now.mistakes.empty());
    ASSERT_EQ(now.differences.size(), 1U);
    EXPECT_EQ(now.differences[0],
              "page.md:5: not what this command prints: orrery a --b\n  shown: old\n  printed: new");
}

TEST(Page, FencedBlocksAreReadToo) {
    MadeUpPlace place{.outputs = {{"a", {"1\n\n2\n"}}}};
    const Renewed now = place.renew_page("```\n$ orrery a\n1\n```\n");
    EXPECT_EQ(now.text, "```\n$ orrery a\n1\n\n2\n```\n");
    ASSERT_EQ(now.differences.size(), 1U);
    EXPECT_NE(now.differences[0].find("page.md:4: "), std::string::npos);
    EXPECT_NE(now.differences[0].find("shown: (nothing more)\n"), std::string::npos);
}

TEST(Page, CommandsWithoutOutputRunOnlyWithAMark) {
    MadeUpPlace place{.outputs = {{"a", {"1\n"}}}};
    const std::string block = "    $ orrery a\n";
    EXPECT_EQ(place.renew_page(block).text, block);
    EXPECT_TRUE(place.runs.empty());
    const Renewed none = place.renew_page("<!-- output: none -->\n\n" + block);
    EXPECT_TRUE(none.differences.empty() && none.mistakes.empty());
    EXPECT_EQ(place.runs.size(), 1U);
    EXPECT_EQ(place.renew_page("<!-- output: all -->\n\n" + block).text,
              "<!-- output: all -->\n\n" + block + "    1\n");
}

TEST(Page, CatWritesItsFile) {
    MadeUpPlace place{.outputs = {{"a f.json", {"1\n"}}}};
    const Renewed now = place.renew_page("    $ cat f.json\n    {\n      \"x\": 1}\n    $ orrery a f.json\n    1\n");
    EXPECT_TRUE(now.differences.empty() && now.mistakes.empty());
    EXPECT_EQ(place.files.at("f.json"), "{\n  \"x\": 1}\n");
}

TEST(Page, ExitCodesAreChecked) {
    MadeUpPlace place{.outputs = {{"a", {"orrery: no\n", 3}}}};
    const std::string block = "    $ orrery a\n    orrery: no\n";
    const Renewed unsaid = place.renew_page(block);
    ASSERT_EQ(unsaid.mistakes.size(), 1U);
    EXPECT_TRUE(unsaid.mistakes[0].starts_with("page.md:1: ended with exit code 3 instead of 0")) << unsaid.mistakes[0];
    EXPECT_EQ(unsaid.text, block);
    EXPECT_TRUE(place.renew_page("<!-- output: exit code 3 -->\n\n" + block).mistakes.empty());
}

/// Outputs of commands that train, measure or need a shell must be marked as kept.
TEST(Page, OutputsThatCannotBeRegeneratedNeedAMark) {
    for (const std::string command :
         {"run p.json", "validate p.json", "calibrate", "calibrate --rows r", "models | head", "models > f"}) {
        MadeUpPlace place;
        const std::string block = "    $ orrery " + command + "\n    something\n";
        const Renewed unmarked = place.renew_page(block);
        ASSERT_EQ(unmarked.mistakes.size(), 1U) << command;
        EXPECT_NE(unmarked.mistakes[0].find("<!-- output: kept (REASON) -->"), std::string::npos);
        const Renewed marked = place.renew_page("<!-- output: kept (measured) -->\n" + block);
        EXPECT_TRUE(marked.mistakes.empty() && marked.differences.empty());
        EXPECT_TRUE(place.runs.empty());
    }
}

TEST(Page, MarksAreReadStrictly) {
    const auto message = [](const std::string& text) {
        return message_of<PageError>([&] { (void)read_page("page.md", text); });
    };
    EXPECT_NE(message("<!-- output: frist 1 -->\n\n    $ orrery a\n").find("page.md:1: a mark says 'frist 1'"),
              std::string::npos);
    EXPECT_NE(message("<!-- output: first 1\n-->\n").find("must end on its line"), std::string::npos);
    const std::string unused = "is not followed by a block";
    EXPECT_NE(message("\n<!-- output: none -->\nText.\n").find("page.md:2: "), std::string::npos);
    EXPECT_NE(message("<!-- output: none -->\n\n    no command\n").find(unused), std::string::npos);
    EXPECT_NE(message("<!-- output: none -->\n").find(unused), std::string::npos);
    EXPECT_NE(message("    stray\n    $ orrery a\n").find("page.md:1: "), std::string::npos);
}

TEST(Page, MarksHoldQuotesAndBrackets) {
    const Page page =
        read_page("page.md",
                  "<!-- output: first 2, line \"a, b\", 3 from \"c (d\", paragraph \"e\", width 90, exit code 2 -->\n"
                  "    $ orrery a\n    x\n\n<!-- output: kept (Slurm, and a cluster) -->\n\n    $ orrery b\n    y\n");
    ASSERT_EQ(page.blocks.size(), 2U);
    const Mark& mark = page.blocks[0].mark;
    ASSERT_EQ(mark.parts.size(), 4U);
    EXPECT_EQ(mark.parts[1].text, "a, b");
    EXPECT_EQ(mark.parts[2].text, "c (d");
    EXPECT_EQ(mark.parts[2].lines, 3);
    EXPECT_EQ(mark.width, 90);
    EXPECT_EQ(mark.exit_code, 2);
    EXPECT_EQ(page.blocks[1].mark.kept, "Slurm, and a cluster");
}

}  // namespace
}  // namespace orrery::docs
