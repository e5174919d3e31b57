// Every reader takes its seeds, and thousands of seeds spoilt in a fixed random way, without anything but an answer or
// an InputError. The same readers run under libFuzzer with `./dev fuzz`.
#include <gtest/gtest.h>

#include <array>
#include <exception>
#include <map>
#include <sstream>

#include "core/error.h"
#include "core/file.h"
#include "core/random.h"
#include "tests/fuzz/targets.h"

namespace orrery::fuzz {
namespace {

constexpr int kMutations = 3000;  // of each target

/// tests/fuzz/seeds.txt: "TARGET PATH" a line, paths from the root of the repository.
std::map<std::string, std::vector<std::string>> seeds() {
    const std::string root = ORRERY_SOURCE_DIR;
    std::istringstream list(read_text_file(root + "/tests/fuzz/seeds.txt"));
    std::map<std::string, std::vector<std::string>> all;
    for (std::string target, path; list >> target >> path;) all[target].push_back(read_text_file(root + "/" + path));
    return all;
}

class Mutator {
  public:
    explicit Mutator(std::string_view target) : random_(1, target) {}

    std::string spoil(std::string text, const std::vector<std::string>& others) {
        const std::size_t times = 1 + below(6);
        for (std::size_t i = 0; i < times; ++i) change(text, others);
        return text;
    }

  private:
    std::size_t below(std::size_t count) {
        return count == 0 ? 0 : static_cast<std::size_t>(random_.below(next_++, count));
    }

    void change(std::string& text, const std::vector<std::string>& others) {
        static constexpr std::array kWords{"-1",        "0",
                                           "999999999", "99999999999999999999",
                                           "1e309",     "nan",
                                           "\"",        "<",
                                           ">",         "[",
                                           "]",         "{",
                                           "}",         ",",
                                           "=",         ":",
                                           "\n",        "[0-999999999]",
                                           "0x",        "\xff",
                                           "\x1b[",     "&#0;",
                                           "NV18",      "null",
                                           "- ",        "/>",
                                           "--",        "true"};
        const std::size_t at = below(text.size() + 1);
        const std::size_t length = std::min(below(24) + 1, text.size() - at);
        switch (below(6)) {
            case 0:
                if (at < text.size()) text[at] = static_cast<char>(below(256));
                break;
            case 1:
                text.erase(at, length);
                break;
            case 2:
                text.insert(at, text.substr(at, length));
                break;
            case 3:
                text.replace(at, below(2) * length, kWords.at(below(kWords.size())));
                break;
            case 4:
                text.resize(at);
                break;
            default: {
                const std::string& other = others[below(others.size())];
                text = text.substr(0, at) + other.substr(below(other.size()));
            }
        }
    }

    RandomStream random_;
    std::uint64_t next_ = 0;
};

class Replay : public testing::TestWithParam<Target> {};

TEST_P(Replay, AnswersOrRefuses) {
    const std::vector<std::string> all = seeds()[GetParam().name];
    ASSERT_FALSE(all.empty()) << "tests/fuzz/seeds.txt names no seed";
    for (const std::string& seed : all) EXPECT_NO_THROW(GetParam().read(seed));
    Mutator mutator(GetParam().name);
    for (int i = 0; i < kMutations; ++i) {
        const std::string text = mutator.spoil(all[static_cast<std::size_t>(i) % all.size()], all);
        try {
            run(GetParam(), text);
        } catch (const std::exception& error) {
            FAIL() << error.what() << "\non mutation " << i << ":\n" << text;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Targets, Replay, testing::ValuesIn(targets()),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(Canary, IsNotTakenForAnAnswer) {
    EXPECT_THROW(run(target_named("canary"), "can"), BugError);
    EXPECT_NO_THROW(run(target_named("canary"), "nothing"));
}

}  // namespace
}  // namespace orrery::fuzz
