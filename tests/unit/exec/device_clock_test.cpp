#include "exec/device/device_clock.h"

#include <gtest/gtest.h>

#include <cmath>

namespace orrery::exec {
namespace {

constexpr double kSecond_ms = 1000;
constexpr std::int64_t kMicrosecond_ns = 1000;

/// The host's time when the device's clock, which runs fast by `drift`, has counted so many milliseconds.
std::int64_t true_ns(double device_ms, double drift) {
    return static_cast<std::int64_t>(device_ms / (1 + drift) * 1e6);
}

TEST(DeviceClock, FollowsTheHostThoughTheDevicesClockIsFaster) {
    constexpr double kDrift = 50e-6;
    DeviceClock clock(0);
    for (int second = 1; second <= 300; ++second) {
        // Some microseconds of inexactness, alternating.
        const std::int64_t measured =
            true_ns(second * kSecond_ms, kDrift) + (second % 2 == 0 ? 5 : -5) * kMicrosecond_ns;
        clock.advance(kSecond_ms, measured);
    }
    const std::int64_t expected = true_ns(300.5 * kSecond_ms, kDrift);
    EXPECT_NEAR(static_cast<double>(clock.time_ns(clock.newest(), 500)), static_cast<double>(expected),
                30.0 * kMicrosecond_ns);
    // Without a comparison the difference would be 15 ms by now.
    EXPECT_GT(std::abs(static_cast<double>(300.5 * kSecond_ms * 1e6) - static_cast<double>(expected)), 14e6);
}

TEST(DeviceClock, IsContinuousAtANewAnchor) {
    DeviceClock clock(1'000'000);
    const std::int64_t before = clock.time_ns(0, 900);
    const std::int64_t at = clock.time_ns(0, 1000);
    clock.advance(1000, at + 40 * kMicrosecond_ns);  // 40 us late
    EXPECT_EQ(clock.time_ns(1, 0), at);
    EXPECT_EQ(clock.time_ns(0, 900), before);  // earlier events keep their times
    // Made up for, and half of it taken for a drift that stays.
    EXPECT_NEAR(static_cast<double>(clock.time_ns(1, 1000) - at), 1e9 + 60.0 * kMicrosecond_ns, 1.0);
}

/// The events of one stream are looked at when anchors have been made after those of another.
TEST(DeviceClock, EventsKeepTheirTimesHoweverManyAnchorsFollow) {
    DeviceClock clock(0);
    clock.advance(1000, 1'000'050'000);
    const std::int64_t soon = clock.time_ns(1, 10), late = clock.time_ns(1, 900);
    for (std::int64_t second = 2; second < 200; ++second) {
        const std::int64_t last = clock.time_ns(clock.newest(), 999.999);
        clock.advance(1000, second * 1'000'000'000 + (second % 3 - 1) * 40 * kMicrosecond_ns);
        EXPECT_LE(last, clock.time_ns(clock.newest(), 0));
        EXPECT_EQ(clock.time_ns(1, 10), soon);
        EXPECT_EQ(clock.time_ns(1, 900), late);
    }
}

TEST(DeviceClock, ForgetsOldAnchors) {
    DeviceClock clock(0);
    for (int second = 1; second <= 1000; ++second) clock.advance(1000, {});
    EXPECT_EQ(clock.newest(), 1000);
    EXPECT_GT(clock.oldest(), 500);
    EXPECT_EQ(clock.time_ns(clock.oldest(), -1000), (clock.oldest() - 1) * 1'000'000'000);
}

TEST(DeviceClock, RunsOnWithoutAComparison) {
    DeviceClock clock(7);
    clock.advance(1500, {});
    EXPECT_EQ(clock.time_ns(1, 0.001), 1'500'001'007);
}

TEST(DeviceClock, NeverRunsBackwards) {
    DeviceClock clock(0);
    clock.advance(1000, -5'000'000'000);  // the host's clock jumped
    EXPECT_LT(clock.time_ns(1, 0), clock.time_ns(1, 0.01));
}

}  // namespace
}  // namespace orrery::exec
