// Paced operations on one rank. tests/paced compares whole jobs with the simulator.
#include <gtest/gtest.h>

#include "core/error.h"
#include "exec/spread.h"
#include "exec/transport/progress.h"
#include "tests/unit/exec/transport_world.h"

namespace orrery::exec {
namespace {

using program::Stream;

constexpr std::int64_t kMillisecond = 1'000'000;

TEST(Moments, AreThoseOfTheLatestOperations) {
    Moments moments(2);
    moments.add(Stream::dp, {10, 11});
    moments.add(Stream::dp, {20, 21});
    moments.add(Stream::tp, {15, 15});
    moments.add(Stream::dp, {30, 33});
    EXPECT_EQ(moments.at(Stream::dp, 2).due_ns, 20);
    EXPECT_EQ(moments.at(Stream::dp, 3).actual_ns, 33);
    EXPECT_EQ(moments.at(Stream::tp, 1).due_ns, 15);
    EXPECT_THROW((void)moments.at(Stream::dp, 1), BugError);  // not kept
    EXPECT_THROW((void)moments.at(Stream::dp, 4), BugError);  // not ended
    EXPECT_THROW((void)moments.at(Stream::cp, 1), BugError);
}

TEST(PacedOperations, EndTimesDoNotDependOnLateThreads) {
    Transport& transport = world_of_this_process();
    const GroupHandle alone = transport.create_group({0});
    ProgressEngine engine(transport, {}, Pacing{.kept_moments = 8});
    const std::int64_t start = now_ns();
    OperationTimes times;
    const auto post = [&](Stream stream, std::int64_t issued, std::int64_t duration, const Dependencies& after) {
        return engine.post(stream, {.group = alone, .after = after, .times = &times, .pace = Pace{issued, duration}});
    };
    EXPECT_EQ(post(Stream::compute, start, 4 * kMillisecond, {}), 1);
    EXPECT_EQ(post(Stream::dp, start, 2 * kMillisecond, {}), 1);
    EXPECT_EQ(post(Stream::compute, start, 1 * kMillisecond, {}), 2);  // behind the first
    Dependencies both{};
    both[Stream::compute] = 1;
    both[Stream::dp] = 1;
    EXPECT_EQ(post(Stream::tp, start + kMillisecond, 3 * kMillisecond, both), 1);
    EXPECT_EQ(post(Stream::copy_in, start + 20 * kMillisecond, kMillisecond, {}), 1);  // issued late
    engine.wait_all();
    EXPECT_GE(now_ns(), start + 21 * kMillisecond);
    const auto due = [&](Stream stream, std::int64_t sequence) {
        const Moment moment = engine.moment_of(stream, sequence);
        EXPECT_GE(moment.actual_ns, moment.due_ns);
        return moment.due_ns - start;
    };
    EXPECT_EQ(due(Stream::compute, 1), 4 * kMillisecond);
    EXPECT_EQ(due(Stream::dp, 1), 2 * kMillisecond);
    EXPECT_EQ(due(Stream::compute, 2), 5 * kMillisecond);
    EXPECT_EQ(due(Stream::tp, 1), 7 * kMillisecond);  // after both have ended, by their computed times
    EXPECT_EQ(due(Stream::copy_in, 1), 21 * kMillisecond);
    EXPECT_EQ(times.begin_ns, start + 20 * kMillisecond);
    EXPECT_EQ(times.end_ns, start + 21 * kMillisecond);
}

TEST(PacedOperations, CannotBeMixedWithOthers) {
    Transport& transport = world_of_this_process();
    const GroupHandle alone = transport.create_group({0});
    {
        ProgressEngine engine(transport, {}, Pacing{.kept_moments = 1});
        EXPECT_THROW(engine.post(Stream::dp, {.group = alone}), BugError);
    }
    ProgressEngine engine(transport);
    EXPECT_THROW(engine.post(Stream::dp, {.group = alone, .pace = Pace{}}), BugError);
    EXPECT_THROW(engine.post(Stream::compute, {.group = alone}), BugError);
}

TEST(Spreads, CoverTheMeasuredStepsThatHaveSpans) {
    const auto step = [](std::int64_t wait, std::int64_t taken) {
        return StepTimes{.spans = {{0, 0, 0, 100, 100 + wait, 100 + wait + taken}, {0, 0, 1, 0, 0, 7}}};
    };
    const std::vector<StepTimes> steps{step(1000, 100000), {}, step(1, 10), step(3, 30), step(2, 20)};
    const std::vector<program::SpanSpread> spreads = spreads_of(steps, 1);
    ASSERT_EQ(spreads.size(), 2U);
    EXPECT_EQ(spreads[0].p5_ps, 11);
    EXPECT_EQ(spreads[0].median_ps, 20);
    EXPECT_EQ(spreads[0].p95_ps, 29);
    EXPECT_EQ(spreads[0].median_wait_ps, 2);
    EXPECT_EQ(spreads[1].p95_ps, 7);
}

}  // namespace
}  // namespace orrery::exec
