#include "sim/capacity/size_search.h"

#include <gtest/gtest.h>

#include <set>

namespace orrery::sim {
namespace {

using program::CapacityAnswer;
using program::CapacityLimit;
using program::CapacitySize;

constexpr std::int64_t kGrain = 8;

/// A job of `work` device-days with a plan from `fits` devices on.
struct Job {
    double work = 0;
    std::int64_t fits = 1;
    std::int64_t spares = 0;
    std::int64_t scales_to = 1 << 20;  // more devices are no faster
    std::multiset<std::int64_t> seen{};

    CapacityAnswer smallest(double days, std::int64_t least, std::int64_t most) {
        const auto evaluate = [&](const std::vector<std::int64_t>& all) {
            std::vector<CapacitySize> sizes;
            for (const std::int64_t devices : all) {
                seen.insert(devices);
                CapacitySize size{.devices = devices + spares, .spare_devices = spares};
                if (devices < fits) size.reason = "does not fit";
                size.days_needed = work / static_cast<double>(std::min(devices, scales_to));
                sizes.push_back(size);
            }
            return sizes;
        };
        CapacityAnswer answer;
        find_smallest(
            {.least = least, .most = most, .grain = kGrain}, evaluate,
            [days](const CapacitySize& size) { return size.is_found() && size.days_needed <= days; }, answer);
        for (const std::int64_t devices : seen) EXPECT_EQ(seen.count(devices), 1U) << devices;
        return answer;
    }
};

TEST(SizeSearch, FindsTheSmallestToA32nd) {
    for (const std::int64_t needed : {8, 16, 24, 100, 1000, 4064, 5000, 16384, 20000}) {
        Job job{.work = static_cast<double>(needed) * 90};
        const CapacityAnswer answer = job.smallest(90, needed / 3, 131072);
        ASSERT_TRUE(answer.meets) << needed;
        EXPECT_GE(answer.best.devices, needed);
        EXPECT_LE(answer.best.devices, needed + std::max(kGrain, needed / 16)) << needed;
        EXPECT_EQ(answer.limit, CapacityLimit::deadline);
        EXPECT_LE(answer.explored.size(), 20U);
        EXPECT_TRUE(std::is_sorted(answer.explored.begin(), answer.explored.end(),
                                   [](const auto& a, const auto& b) { return a.devices < b.devices; }));
    }
}

TEST(SizeSearch, SparesAreNotPartOfTheSizesSearched) {
    Job job{.work = 4000.0 * 90, .spares = 32};
    const CapacityAnswer answer = job.smallest(90, 1000, 131072);
    EXPECT_GE(answer.best.devices - 32, 4000);
    EXPECT_LE(answer.best.devices - 32, 4000 + 4000 / 16);
}

TEST(SizeSearch, MemoryMaySetTheSize) {
    Job job{.work = 10, .fits = 48};
    const CapacityAnswer answer = job.smallest(90, 1, 1024);
    EXPECT_TRUE(answer.meets);
    EXPECT_EQ(answer.best.devices, 48);
    EXPECT_EQ(answer.limit, CapacityLimit::memory);
}

TEST(SizeSearch, WhatIsAllowedMayNotSuffice) {
    Job job{.work = 4000.0 * 90};
    const CapacityAnswer few = job.smallest(90, 1000, 2050);
    EXPECT_FALSE(few.meets);
    EXPECT_EQ(few.limit, CapacityLimit::devices);
    EXPECT_EQ(few.best.devices, 2048);
    Job rigid{.work = 4000.0 * 90, .scales_to = 256};
    const CapacityAnswer stuck = rigid.smallest(90, 100, 131072);
    EXPECT_FALSE(stuck.meets);
    EXPECT_EQ(stuck.limit, CapacityLimit::scaling);
    EXPECT_EQ(stuck.best.devices, 256);
    EXPECT_LE(*rigid.seen.rbegin(), 1024);
    Job large{.work = 10, .fits = 4096};
    const CapacityAnswer none = large.smallest(90, 1, 512);
    EXPECT_FALSE(none.meets);
    EXPECT_EQ(none.limit, CapacityLimit::none);
    EXPECT_FALSE(none.best.is_found());
    // Fewer are allowed than can meet the goal by their peak FLOP/s.
    Job hopeless{.work = 4000.0 * 90};
    const CapacityAnswer slow = hopeless.smallest(90, 3000, 64);
    EXPECT_FALSE(slow.meets);
    EXPECT_EQ(slow.best.devices, 64);
}

}  // namespace
}  // namespace orrery::sim
