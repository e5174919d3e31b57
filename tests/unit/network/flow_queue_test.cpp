#include "sim/network/flow_queue.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "core/random.h"

namespace orrery::sim {
namespace {

// Beside a map, which holds the same events in the same total order.
TEST(FlowQueue, IsATotalOrderUnderMovesAndCancellations) {
    const RandomStream random(5, "flow queue");
    std::uint64_t draws = 0;
    const auto below = [&](std::uint64_t bound) { return random.below(draws++, bound); };
    for (int round = 0; round < 300; ++round) {
        FlowQueue queue;
        std::map<std::pair<std::int64_t, std::uint64_t>, std::int32_t> expected;
        std::vector<std::pair<std::int64_t, std::uint64_t>> key_of(40, {-1, 0});
        const auto forget = [&](std::int32_t slot) {
            expected.erase(key_of[static_cast<std::size_t>(slot)]);
            key_of[static_cast<std::size_t>(slot)] = {-1, 0};
        };
        for (std::uint64_t step = 0; step < 400; ++step) {
            const auto slot = static_cast<std::int32_t>(below(40));
            const std::uint64_t what = below(10);
            if (what < 6) {
                forget(slot);
                // Few times, so that many are equal; orders from both halves of the range.
                const std::pair<std::int64_t, std::uint64_t> key{below(8), below(2) << 63U | step};
                queue.schedule({key.first, key.second, slot});
                expected[key] = slot;
                key_of[static_cast<std::size_t>(slot)] = key;
            } else if (what < 7) {
                queue.cancel(slot);
                forget(slot);
            } else if (!expected.empty()) {
                ASSERT_EQ(queue.front().slot, expected.begin()->second);
                ASSERT_EQ(queue.pop().slot, expected.begin()->second);
                forget(expected.begin()->second);
            }
            ASSERT_EQ(queue.empty(), expected.empty());
        }
        while (!expected.empty()) {
            ASSERT_EQ(queue.pop().slot, expected.begin()->second);
            expected.erase(expected.begin());
        }
        ASSERT_TRUE(queue.empty());
    }
}

}  // namespace
}  // namespace orrery::sim
