#include "sim/sharing/event_queue.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "core/random.h"

namespace orrery::sim {
namespace {

TEST(EventQueue, EventsAtEqualTimesAreFifo) {
    EventQueue queue;
    queue.resize(3);
    queue.schedule(2, 5);
    queue.schedule(0, 5);
    queue.schedule(1, 0);
    EXPECT_EQ(queue.pop().slot, 1);
    EXPECT_EQ(queue.pop().slot, 2);
    EXPECT_EQ(queue.pop().slot, 0);
    EXPECT_TRUE(queue.empty());
}

TEST(EventQueue, ANewEventReplacesTheSlotsEvent) {
    EventQueue queue;
    queue.resize(2);
    queue.schedule(0, 5);
    queue.schedule(1, 7);
    queue.schedule(0, 9);
    EXPECT_EQ(queue.size(), 2U);
    EXPECT_EQ(queue.next_time(), 7);
    EXPECT_EQ(queue.pop().slot, 1);
    EXPECT_EQ(queue.pop().time_ps, 9);
    EXPECT_TRUE(queue.empty());
}

TEST(EventQueue, AnEventMayBeNowButNotInThePast) {
    EventQueue queue;
    queue.resize(1);
    queue.schedule(0, 4);
    (void)queue.pop();
    queue.schedule(0, 4);
    EXPECT_EQ(queue.pop().time_ps, 4);
    EXPECT_THROW(queue.schedule(0, 3), BugError);
    EXPECT_THROW((void)queue.pop(), BugError);
}

TEST(EventQueue, MatchesAMultimapUnderRandomUse) {
    constexpr std::int32_t kSlots = 40;
    const RandomStream random(7, "queue");
    std::uint64_t draw = 0;
    for (int round = 0; round < 50; ++round) {
        EventQueue queue;
        queue.resize(kSlots);
        std::multimap<std::int64_t, std::int32_t> oracle;  // keeps the order of insertion at equal keys
        std::int64_t now = 0;
        const auto forget = [&](std::int32_t slot) {
            std::erase_if(oracle, [slot](const auto& entry) { return entry.second == slot; });
        };
        for (int i = 0; i < 2000; ++i) {
            const std::uint64_t choice = random.below(draw++, 10);
            const auto slot = static_cast<std::int32_t>(random.below(draw++, kSlots));
            if (choice < 5) {
                const std::int64_t time = now + static_cast<std::int64_t>(random.below(draw++, 20));
                queue.schedule(slot, time);
                forget(slot);
                oracle.emplace(time, slot);
            } else if (choice < 6) {
                queue.cancel(slot);
                forget(slot);
            } else if (!oracle.empty()) {
                ASSERT_EQ(queue.next_time(), oracle.begin()->first);
                const EventQueue::Event event = queue.pop();
                ASSERT_EQ(event.time_ps, oracle.begin()->first);
                ASSERT_EQ(event.slot, oracle.begin()->second);
                now = event.time_ps;
                oracle.erase(oracle.begin());
            }
            ASSERT_EQ(queue.size(), oracle.size());
            ASSERT_EQ(queue.empty(), oracle.empty());
        }
    }
}

}  // namespace
}  // namespace orrery::sim
