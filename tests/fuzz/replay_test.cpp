// Every reader handles its seeds, and thousands of deterministic random mutations of them, with a result or an
// InputError. The same readers run under libFuzzer with `./dev fuzz`.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.h"
#include "core/file.h"
#include "core/random.h"
#include "tests/fuzz/targets.h"

namespace orrery::fuzz {
namespace {

constexpr int kMutations = 3000;              // per target
constexpr int kMutationsOfPredictions = 600;  // per target that also predicts
/// Limit of CPU time per input; instrumented builds are ten times slower.
#if defined(__SANITIZE_ADDRESS__)
constexpr double kMostSeconds = 50;
#else
constexpr double kMostSeconds = 5;
#endif
constexpr long kMostKibibytes = 1 << 20;  // limit of peak memory

/// Seeds by target, from tests/fuzz/seeds.txt: one "TARGET PATH" per line, with paths from the root of the repository.
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

    /// Half of the mutations of a JSON document change its values and keep it well-formed; the rest change bytes.
    std::string mutate(std::string text, const std::vector<std::string>& others) {
        if (below(2) == 0) {
            nlohmann::ordered_json json = nlohmann::ordered_json::parse(text, nullptr, false);
            if (!json.is_discarded()) {
                for (std::size_t left = 1 + below(3); left > 0; --left) change_value(json);
                return json.dump(1);
            }
        }
        const std::size_t times = 1 + below(6);
        for (std::size_t i = 0; i < times; ++i) change(text, others);
        return text;
    }

  private:
    std::size_t below(std::size_t count) {
        return count == 0 ? 0 : static_cast<std::size_t>(random_.below(next_++, count));
    }

    static void list_values(nlohmann::ordered_json& value, std::vector<nlohmann::ordered_json*>& all) {
        all.push_back(&value);
        for (nlohmann::ordered_json& child : value) {
            if (value.is_structured()) list_values(child, all);
        }
    }

    void change_value(nlohmann::ordered_json& json) {
        using nlohmann::ordered_json;
        static const std::vector<ordered_json> kValues{0,          1,         2,         3,
                                                       7,          -1,        1024,      65536,
                                                       999999999,  1LL << 31, 1LL << 40, 1LL << 62,
                                                       1e-300,     0.5,       1.5,       1e9,
                                                       1e24,       1e300,     true,      false,
                                                       nullptr,    "",        "none",    "x",
                                                       "a/b",      {},        {1},       {{"key", 1}},
                                                       -0.5,       1e-12,     100,       "dgx-a100",
                                                       "tiny-gpt", "1f1b",    "zb-v",    "zero3",
                                                       "fp8",      "full",    "moe",     std::string(300, 'y')};
        std::vector<ordered_json*> all;
        list_values(json, all);
        ordered_json& one = *all[below(all.size())];
        switch (below(8)) {
            case 0:
                one = *all[below(all.size())];
                break;
            case 1:
                if (one.is_structured() && !one.empty())
                    one.erase(std::next(one.begin(), static_cast<std::ptrdiff_t>(below(one.size()))));
                break;
            case 2:
                if (one.is_array()) one.push_back(kValues[below(kValues.size())]);
                break;
            case 3:
                if (one.is_number()) one = one.get<double>() * 10;
                if (one.is_boolean()) one = !one.get<bool>();
                break;
            case 4:
                if (one.is_number_integer()) {
                    one = static_cast<std::int64_t>(one.get<std::uint64_t>() * std::uint64_t{1 + below(7)});
                }
                break;
            default:
                one = kValues[below(kValues.size())];
        }
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

TEST_P(Replay, ReturnsOrThrowsInputError) {
    const std::vector<std::string> all = seeds()[GetParam().name];
    ASSERT_FALSE(all.empty()) << "tests/fuzz/seeds.txt has no seed for this target";
    for (const std::string& seed : all) EXPECT_NO_THROW(GetParam().read(seed));
    Mutator mutator(GetParam().name);
    const char* const asked = std::getenv("ORRERY_MUTATIONS");  // set by ./dev fuzz
    const int mutations = asked != nullptr      ? std::stoi(asked)
                          : GetParam().predicts ? kMutationsOfPredictions
                                                : kMutations;
    int read = 0;
    for (int i = 0; i < mutations; ++i) {
        const std::string text = mutator.mutate(all[static_cast<std::size_t>(i) % all.size()], all);
        const std::clock_t begin = std::clock();
        try {
            if (run(GetParam(), text)) ++read;
        } catch (const std::exception& error) {
            FAIL() << error.what() << "\non mutation " << i << ":\n" << text;
        }
        const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
        ASSERT_LT(seconds, kMostSeconds) << "on mutation " << i << ":\n" << text;
    }
    EXPECT_GT(read, 0) << "every mutation was refused, so that only the first checks were tested";
#if !defined(__SANITIZE_ADDRESS__)
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    EXPECT_LT(used.ru_maxrss, kMostKibibytes);
#endif
}

INSTANTIATE_TEST_SUITE_P(Targets, Replay, testing::ValuesIn(targets()),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(Canary, ItsBugErrorIsNotCaught) {
    EXPECT_THROW((void)run(target_named("canary"), "can"), BugError);
    EXPECT_TRUE(run(target_named("canary"), "nothing"));
}

}  // namespace
}  // namespace orrery::fuzz
