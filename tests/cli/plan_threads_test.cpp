// `orrery plan --threads`: the same answer from any number of threads; the line with the progress of a search.
#include <gtest/gtest.h>

#include "tests/cli/checks.h"

namespace orrery::test {
namespace {

using WordList = std::vector<std::string>;

WordList plan_of_mixtral(const WordList& more) {
    WordList words{"plan",           "--model", "mixtral-8x7b", "--cluster", "dgx-h100",  "--gpus", "16",
                   "--global-batch", "64",      "--seq",        "4096",      "--explain", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

TEST(PlanThreads, AnyNumberGivesTheSameAnswer) {
    const Workplace here;
    const CommandResult one = here.run(plan_of_mixtral({"--threads", "1"}));
    expect_done(one);
    for (const char* threads : {"2", "7"}) {
        EXPECT_EQ(here.run(plan_of_mixtral({"--threads", threads})).out, one.out) << threads << " threads";
    }
    expect_refused(here.run(plan_of_mixtral({"--threads", "0"})), 2, {"--threads", "0"});
}

TEST(PlanThreads, ProgressIsShownOnATerminalOnlyAndErased) {
    const Workplace here;
    // Takes far longer than the interval between two reports.
    const WordList words{"plan",           "--model", "llama3-70b", "--cluster", "dgx-h100", "--gpus", "512",
                         "--global-batch", "1024",    "--seq",      "8192",      "--top",    "1"};
    CommandOptions options;
    options.on_terminal = true;
    const std::string shown = here.run(words, options).out;
    const std::size_t line = shown.find(" plans decided, ");
    ASSERT_NE(line, std::string::npos) << shown;
    EXPECT_NE(shown.find(" a second; ", line), std::string::npos) << shown;
    EXPECT_NE(shown.find(", the rest at least ", line), std::string::npos) << shown;
    const std::size_t erased = shown.rfind("\r\x1b[K");
    ASSERT_NE(erased, std::string::npos) << shown;
    EXPECT_GT(shown.find("plans considered"), erased);
    const CommandResult piped = here.run(words);
    expect_done(piped);
    EXPECT_EQ(piped.out.find("decided"), std::string::npos);
}

}  // namespace
}  // namespace orrery::test
