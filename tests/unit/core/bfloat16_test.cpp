#include "core/bfloat16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace orrery {
namespace {

TEST(Bfloat16, EveryValueComesBack) {
    for (std::uint32_t bits = 0; bits <= 0xffffU; ++bits) {
        const auto half = static_cast<std::uint16_t>(bits);
        const float value = from_bf16(half);
        if (std::isnan(value)) {
            EXPECT_EQ(to_bf16(value), half | 0x40) << bits;
        } else {
            ASSERT_EQ(to_bf16(value), half) << bits;
        }
    }
}

TEST(Bfloat16, RoundsToNearestAndTiesToEven) {
    EXPECT_EQ(to_bf16(1.0F), 0x3f80);
    EXPECT_EQ(from_bf16(0x3f80), 1.0F);
    EXPECT_EQ(from_bf16(to_bf16(1.0F + 0x1p-8F)), 1.0F);                       // a tie: down to the even one
    EXPECT_EQ(from_bf16(to_bf16(1.0F + 0x1p-8F + 0x1p-20F)), 1.0F + 0x1p-7F);  // just above it
    EXPECT_EQ(from_bf16(to_bf16(1.0F + 0x3p-8F)), 1.0F + 0x1p-6F);             // a tie: up to the even one
    EXPECT_EQ(from_bf16(to_bf16(-1.0F - 0x3p-8F)), -1.0F - 0x1p-6F);
    EXPECT_EQ(from_bf16(to_bf16(3.14159265F)), 3.140625F);
    EXPECT_EQ(to_bf16(-0.0F), 0x8000);
    EXPECT_EQ(to_bf16(std::numeric_limits<float>::denorm_min()), 0);
}

TEST(Bfloat16, InfinityAndNaN) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    EXPECT_EQ(from_bf16(to_bf16(kInfinity)), kInfinity);
    EXPECT_EQ(from_bf16(to_bf16(-kInfinity)), -kInfinity);
    EXPECT_EQ(from_bf16(to_bf16(std::numeric_limits<float>::max())), kInfinity);
    EXPECT_TRUE(std::isnan(from_bf16(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
    for (const std::uint32_t bits : {0x7f800001U, 0xff800001U, 0x7fffffffU, 0xffffffffU}) {
        EXPECT_TRUE(std::isnan(from_bf16(to_bf16(std::bit_cast<float>(bits))))) << bits;
    }
}

}  // namespace
}  // namespace orrery
