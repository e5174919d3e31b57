#include "exec/data.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/unit/core/test_folder.h"

namespace orrery::exec {
namespace {

std::vector<std::int32_t> sample_of(const TokenSource& source, std::int64_t sample) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(source.sequence() + 1), -1);
    source.tokens_for(sample, tokens);
    return tokens;
}

TEST(SyntheticData, FollowsTheMapExceptForNoise) {
    const TokenSource source("synthetic", 1234, 100, 4000);
    const auto tokens = sample_of(source, 3);
    int noisy = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        ASSERT_GE(tokens[i], 0);
        ASSERT_LT(tokens[i], 100);
        if (i > 0 && tokens[i] != (5 * tokens[i - 1] + 7) % 100) ++noisy;
    }
    // Expected are 4000 / 8 = 500, less the 1 in 100 that follows the map by chance; the standard deviation is 21.
    EXPECT_NEAR(noisy, 495, 85);
}

TEST(SyntheticData, DependsOnSeedAndSampleOnly) {
    const TokenSource a("synthetic", 1, 128, 16);
    const TokenSource b("synthetic", 2, 128, 16);
    EXPECT_EQ(sample_of(a, 5), sample_of(a, 5));
    EXPECT_NE(sample_of(a, 5), sample_of(a, 6));
    EXPECT_NE(sample_of(a, 5), sample_of(b, 5));
    // A longer sequence starts with the same tokens.
    const TokenSource longer("synthetic", 1, 128, 32);
    auto start = sample_of(longer, 5);
    start.resize(17);
    EXPECT_EQ(start, sample_of(a, 5));
}

class TextData : public ::testing::Test {
  protected:
    void write(const std::string& content) { std::ofstream(path_, std::ios::binary) << content; }
    // Tests run concurrently, so each has its own file.
    TestFolder folder_;
    const std::string path_ = folder_.file("text.txt");
};

TEST_F(TextData, SamplesAreWindowsOfBytes) {
    std::string content;
    for (int i = 0; i < 20; ++i) content.push_back(static_cast<char>(200 + i));
    write(content);
    const TokenSource source(path_, 1, 256, 6);  // 13 starts
    EXPECT_EQ(sample_of(source, 0), (std::vector<std::int32_t>{200, 201, 202, 203, 204, 205, 206}));
    EXPECT_EQ(sample_of(source, 2)[0], 212);
    EXPECT_EQ(sample_of(source, 3)[0], 205);  // 18 mod 13
    EXPECT_EQ(sample_of(source, 3).size(), 7U);
    for (std::int64_t sample = 0; sample < 40; ++sample) EXPECT_LE(sample_of(source, sample).back(), 219);
}

TEST_F(TextData, ShortestFile) {
    write("abcd");
    const TokenSource source(path_, 1, 256, 2);
    EXPECT_EQ(sample_of(source, 9), (std::vector<std::int32_t>{'a', 'b', 'c'}));
}

TEST_F(TextData, BadInputIsNamed) {
    write("abc");
    auto message = [](auto make) -> std::string {
        try {
            make();
        } catch (const InputError& error) {
            return error.what();
        }
        return "nothing thrown";
    };
    EXPECT_NE(message([&] { TokenSource(path_, 1, 256, 2); }).find("at least sequence_length + 2 = 4"),
              std::string::npos);
    EXPECT_NE(message([&] { TokenSource(path_, 1, 255, 1); }).find("got 255; allowed: at least 256"),
              std::string::npos);
    EXPECT_NE(message([&] { TokenSource(path_ + ".absent", 1, 256, 1); }).find(path_ + ".absent"), std::string::npos);
}

}  // namespace
}  // namespace orrery::exec
