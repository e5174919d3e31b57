#include "core/crc32c.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace orrery {
namespace {

std::uint32_t of(const std::string& text) {
    const std::uint32_t value = crc32c(text.data(), text.size());
    EXPECT_EQ(crc32c_by_tables(text.data(), text.size()), value);
    return value;
}

// The examples of RFC 3720, B.4, and the standard check value.
TEST(Crc32c, AgreesWithTheStandard) {
    EXPECT_EQ(of("123456789"), 0xE3069283U);
    EXPECT_EQ(of(std::string(32, '\0')), 0x8A9136AAU);
    EXPECT_EQ(of(std::string(32, '\xFF')), 0x62A8AB43U);
    std::string ascending;
    for (char c = 0; c < 32; ++c) ascending.push_back(c);
    EXPECT_EQ(of(ascending), 0x46DD794EU);
    EXPECT_EQ(of(""), 0U);
}

TEST(Crc32c, CanBeComputedInParts) {
    std::string text;
    for (int i = 0; i < 100; ++i) text.push_back(static_cast<char>(37 * i + 5));
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
        EXPECT_EQ(crc32c(text.data() + cut, text.size() - cut, crc32c(text.data(), cut)), of(text)) << cut;
        EXPECT_EQ(crc32c_by_tables(text.data() + cut, text.size() - cut, crc32c(text.data(), cut)), of(text)) << cut;
    }
}

TEST(Crc32c, DetectsEveryFlippedBit) {
    std::string text(41, 'x');
    const std::uint32_t sound = of(text);
    for (char& byte : text) {
        for (int bit = 0; bit < 8; ++bit) {
            byte = static_cast<char>(byte ^ (1 << bit));
            EXPECT_NE(of(text), sound);
            byte = static_cast<char>(byte ^ (1 << bit));
        }
    }
}

}  // namespace
}  // namespace orrery
