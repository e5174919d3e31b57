// The automatic zero-bubble schedules stay within their memory and are no worse than the handcrafted ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "sim/program/zero_bubble_search.h"
#include "tests/unit/program/schedule_shapes.h"

namespace orrery::program {
namespace {

constexpr double kRounding = 1e-6;  // the search counts whole ticks

double peak_of(const ScheduleTiming& timing) {
    double peak = 0;
    for (const RankTiming& rank : timing.ranks) peak = std::max(peak, rank.peak_in_flight);
    return peak;
}

ScheduleTiming timed_as(Schedule schedule, ScheduleShape shape) {
    shape.schedule = schedule;
    return timing_of(shape);
}

TEST(ZeroBubbleSearch, MoreMemoryNeverCostsTime) {
    ShapeSource source(4242);
    for (int round = 0; round < 200; ++round) {
        ScheduleShape shape = shape_of(Schedule::zb_1p, source.integer(1, 9), source.integer(1, 40));
        source.random_times(shape);
        const ScheduleTiming one = timed_as(Schedule::zb_1p, shape), two = timed_as(Schedule::zb_2p, shape);
        const double least = timed_as(Schedule::one_f_one_b, shape).makespan;
        const double slack = least * kRounding;
        EXPECT_LE(two.makespan, one.makespan + slack) << "round " << round;
        EXPECT_LE(one.makespan, timed_as(Schedule::zb_h1, shape).makespan + slack) << "round " << round;
        EXPECT_LE(one.makespan, least + slack) << "round " << round;
        EXPECT_LE(two.makespan, timed_as(Schedule::zb_h2, shape).makespan + slack) << "round " << round;
    }
}

TEST(ZeroBubbleSearch, StaysWithinItsMemory) {
    ShapeSource source(77);
    for (int round = 0; round < 200; ++round) {
        ScheduleShape shape = shape_of(Schedule::zb_1p, source.integer(1, 9), source.integer(1, 40));
        source.random_times(shape);
        if (round % 4 == 0) shape.activation_after_input = 1;
        const auto p = static_cast<double>(shape.ranks);
        EXPECT_LE(peak_of(timed_as(Schedule::zb_1p, shape)), p + kRounding) << "round " << round;
        EXPECT_LE(peak_of(timed_as(Schedule::zb_2p, shape)), 2 * p + kRounding) << "round " << round;
    }
}

TEST(ZeroBubbleSearch, EqualTimesLeaveNoBubbleUnderTwiceTheMemory) {
    for (const std::int64_t p : {1, 2, 3, 4, 8, 16}) {
        const ScheduleShape shape = shape_of(Schedule::zb_2p, p, 3 * p);
        for (const RankTiming& rank : timing_of(shape).ranks) EXPECT_DOUBLE_EQ(rank.end - rank.begin, work_of(shape));
    }
}

TEST(ZeroBubbleSearch, EqualTimesUnderTheMemoryOfOneForwardOneBackward) {
    for (const std::int64_t p : {1, 2, 3, 4, 8, 16}) {
        const ScheduleShape shape = shape_of(Schedule::zb_1p, p, 3 * p);
        EXPECT_DOUBLE_EQ(bubble_of(shape), static_cast<double>(p - 1));  // as ZB-H1: (p-1)(F+I-W)
    }
}

TEST(ZeroBubbleSearch, FindsBetterOrdersThanTheHandcraftedOnes) {
    // The 6.2B model of arXiv 2401.10241, Table 6, p = 8 and m = 24: its times and its share of kept activations.
    ScheduleShape shape = shape_of(Schedule::zb_2p, 8, 24);
    shape.forward_time = 29.718;
    shape.input_time = 29.444;
    shape.weight_time = 19.927;
    shape.transfer_time = 0.527;
    shape.activation_after_input = 0.4325;
    const double work = work_of(shape);
    const double found = timing_of(shape).longest_span() - work;
    EXPECT_GT(timed_as(Schedule::zb_h2, shape).longest_span() - work, 20 * found);
    EXPECT_LT(found, 0.005 * work);
}

TEST(ZeroBubbleSearch, OnlyRatiosOfTimesMatter) {
    ShapeSource source(5);
    for (int round = 0; round < 20; ++round) {
        ScheduleShape shape = shape_of(Schedule::zb_2p, source.integer(2, 6), source.integer(1, 20));
        source.random_times(shape);
        const auto orders = compute_orders(shape);
        const double scale = 1.0 / 1024;  // exact in binary
        shape.forward_time *= scale;
        shape.input_time *= scale;
        shape.weight_time *= scale;
        shape.transfer_time *= scale;
        for (StageTimes& times : shape.times) {
            times = {times.forward * scale, times.input * scale, times.weight * scale};
        }
        EXPECT_EQ(compute_orders(shape), orders) << "round " << round;
    }
}

TEST(ZeroBubbleSearch, ASlowStageSetsThePace) {
    // One stage is twice as slow as the others. Its own work is a lower bound, and the search comes close to it.
    ScheduleShape shape = shape_of(Schedule::zb_2p, 6, 48);
    shape.times.assign(6, {});
    shape.times[3] = {2, 2, 2};
    const double slowest = 48 * 6;
    const ScheduleTiming timing = timing_of(shape);
    EXPECT_GE(timing.longest_span(), slowest);
    EXPECT_LE(timing.makespan, slowest + 3 + 2 * 3 + 3);  // its first F waits for 3 stages, and they drain at the end
}

TEST(ZeroBubbleSearch, AnyMemoryLimitFromThatOf1f1bWorks) {
    const ScheduleShape shape = shape_of(Schedule::zb_1p, 4, 16);
    double previous = std::numeric_limits<double>::infinity();
    for (std::int64_t limit = 4; limit <= 16; ++limit) {
        const ScheduleTiming timing = time_orders(shape, search_zero_bubble(shape, limit));
        EXPECT_EQ(timing.stuck, "");
        EXPECT_LE(peak_of(timing), static_cast<double>(limit));
        EXPECT_LE(timing.longest_span(), previous);
        previous = timing.longest_span();
    }
    EXPECT_THROW((void)search_zero_bubble(shape, 3), BugError);
}

TEST(ZeroBubbleSearch, LargePipelines) {
    ScheduleShape shape = shape_of(Schedule::zb_2p, 64, 1024);
    shape.input_time = 1.1;
    shape.weight_time = 0.8;
    shape.transfer_time = 0.05;
    shape.activation_after_input = 0.5;
    const ScheduleTiming timing = timing_of(shape);
    EXPECT_EQ(timing.stuck, "");
    EXPECT_LT(timing.longest_span(), 1.02 * work_of(shape));
    EXPECT_LE(peak_of(timing), 128 + kRounding);
}

}  // namespace
}  // namespace orrery::program
