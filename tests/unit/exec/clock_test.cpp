#include "exec/clock.h"

#include <gtest/gtest.h>

#include <limits>

namespace orrery::exec {
namespace {

// Rank 0's clock is 1000 ahead. The fastest way there and the fastest way back determine the bounds.
TEST(Clock, ExchangesNarrowTheOffset) {
    ClockOffset offset{std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()};
    offset = narrowed(offset, 0, 1040, 50);  // 40 there, 10 back
    EXPECT_EQ(offset.low_ns, 990);
    EXPECT_EQ(offset.high_ns, 1040);
    offset = narrowed(offset, 100, 1106, 200);  // 6 there, 94 back
    EXPECT_EQ(offset.low_ns, 990);
    EXPECT_EQ(offset.high_ns, 1006);
    EXPECT_EQ(offset.middle_ns(), 998);
    EXPECT_EQ(narrowed(offset, 300, 1500, 700).middle_ns(), 998);  // a slow exchange narrows nothing
}

TEST(Clock, OffsetsMayBeNegative) {
    EXPECT_EQ((ClockOffset{-1003, -1000}).middle_ns(), -1002);
}

}  // namespace
}  // namespace orrery::exec
