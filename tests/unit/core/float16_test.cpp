// The 16-bit floating-point types: all of their values, and fp32 values between them.
#include "core/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace {

using namespace orrery;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

static_assert(from_bf16(0x3F80) == 1.0F && to_bf16(1.0F) == 0x3F80);
static_assert(from_fp16(0x3C00) == 1.0F && to_fp16(1.0F) == 0x3C00);
static_assert(from_fp16(0x0001) == 0x1p-24F && to_fp16(0x1p-24F) == 0x0001);
static_assert(from_fp16(0x7BFF) == 65504.0F && to_fp16(std::numeric_limits<float>::quiet_NaN()) == 0x7E00);
static_assert(to_bf16(-kInfinity) == 0xFF80 && to_fp16(-kInfinity) == 0xFC00);

struct Format {
    const char* name;
    float (*from)(std::uint16_t);
    std::uint16_t (*to)(float);
    std::uint16_t infinity;
    std::uint16_t quiet_bit;
};

class Float16 : public ::testing::TestWithParam<Format> {};

TEST_P(Float16, EveryValueRoundTrips) {
    const Format& format = GetParam();
    for (std::uint32_t i = 0; i <= 0xFFFF; ++i) {
        const auto bits = static_cast<std::uint16_t>(i);
        const float value = format.from(bits);
        const bool is_nan = (bits & 0x7FFF) > format.infinity;
        ASSERT_EQ(std::isnan(value), is_nan) << i;
        ASSERT_EQ(std::signbit(value), bits >> 15 != 0) << i;
        ASSERT_EQ(format.to(value), is_nan ? bits | format.quiet_bit : bits) << i;
    }
}

// Between two neighbours, the midpoint rounds to the even one, and the fp32 values next to the midpoint to the nearer
// one.
TEST_P(Float16, RoundsToNearestEven) {
    const Format& format = GetParam();
    for (std::uint16_t low = 0; low + 1 < format.infinity; ++low) {
        const auto high = static_cast<std::uint16_t>(low + 1);
        const float middle = format.from(low) / 2 + format.from(high) / 2;  // exact, without overflow
        ASSERT_LT(format.from(low), format.from(high)) << low;
        for (const bool negative : {false, true}) {
            const auto signed_bits = [&](std::uint16_t bits) { return bits | (negative ? 0x8000 : 0); };
            const float direction = negative ? -1.0F : 1.0F;
            ASSERT_EQ(format.to(direction * middle), signed_bits(low % 2 == 0 ? low : high)) << low;
            ASSERT_EQ(format.to(direction * std::nextafter(middle, 0.0F)), signed_bits(low)) << low;
            ASSERT_EQ(format.to(direction * std::nextafter(middle, kInfinity)), signed_bits(high)) << low;
        }
    }
}

TEST_P(Float16, TooLargeValuesBecomeInfinity) {
    const Format& format = GetParam();
    const auto largest = static_cast<std::uint16_t>(format.infinity - 1);
    const float last_place = format.from(largest) - format.from(static_cast<std::uint16_t>(largest - 1));
    const float tie = format.from(largest) + last_place / 2;  // its even neighbour is beyond the largest value
    EXPECT_EQ(format.to(std::nextafter(tie, 0.0F)), largest);
    EXPECT_EQ(format.to(tie), format.infinity);
    EXPECT_EQ(format.to(std::numeric_limits<float>::max()), format.infinity);
    EXPECT_EQ(format.to(-std::numeric_limits<float>::max()), format.infinity | 0x8000);
    EXPECT_EQ(format.to(kInfinity), format.infinity);
}

TEST_P(Float16, NanNeverRoundsToInfinity) {
    const Format& format = GetParam();
    for (const std::uint32_t bits : {0x7F80'0001U, 0xFF80'0001U, 0x7FC0'0000U, 0x7FFF'FFFFU, 0xFFFF'FFFFU}) {
        EXPECT_TRUE(std::isnan(format.from(format.to(std::bit_cast<float>(bits))))) << bits;
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, Float16,
                         ::testing::Values(Format{"bf16", from_bf16, to_bf16, 0x7F80, 0x0040},
                                           Format{"fp16", from_fp16, to_fp16, 0x7C00, 0x0200}),
                         [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
