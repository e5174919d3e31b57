#include "sim/planner/ahead.h"

#include <gtest/gtest.h>
#include <oneapi/tbb/global_control.h>

#include <array>
#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/unit/planner/planner_cases.h"

namespace orrery::sim {
namespace {

/// Runs it with so many threads, also on a machine with fewer cores.
void with_threads(int threads, const std::function<void()>& work) {
    const tbb::global_control most(tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(threads));
    tbb::task_arena(threads).execute(work);
}

TEST(Ahead, EachResultIsComputedOnceAndIsThatOfItsKey) {
    for (const int threads : {1, 2, 8}) {
        with_threads(threads, [&] {
            std::array<std::atomic<int>, 100> calls{};
            std::atomic<int> running = 0;
            Ahead<std::size_t, std::string> squares(
                [&](std::size_t key) {
                    ++calls.at(key);
                    return std::to_string(key * key);
                },
                running);
            for (std::size_t key = 0; key < calls.size(); ++key) {
                for (std::size_t next = key + 1; next < calls.size() && has_free_thread(running); ++next) {
                    squares.start(next);
                }
                EXPECT_EQ(squares.take(key), std::to_string(key * key));
            }
            EXPECT_EQ(running, 0);
            for (const auto& one : calls) EXPECT_EQ(one, 1);
        });
    }
}

TEST(Ahead, NeedsNoOtherThread) {
    with_threads(1, [&] {
        std::atomic<int> running = 0;
        {
            Ahead<int, int> same([](int key) { return key; }, running);
            for (int key = 0; key < 4; ++key) same.start(key);
            EXPECT_EQ(running, 4);
            EXPECT_EQ(same.take(2), 2);
            EXPECT_EQ(running, 3);
        }
        EXPECT_EQ(running, 0);
    });
}

TEST(Ahead, ErrorsReachTheCallerThatTakesTheResult) {
    for (const int threads : {1, 4}) {
        with_threads(threads, [&] {
            std::atomic<int> running = 0;
            Ahead<int, int> odd(
                [](int key) {
                    if (key % 2 == 0) throw std::runtime_error("even: " + std::to_string(key));
                    return key;
                },
                running);
            odd.start(2);
            odd.start(3);
            EXPECT_EQ(odd.take(3), 3);
            EXPECT_THROW(static_cast<void>(odd.take(2)), std::runtime_error);
            odd.start(4);  // never taken
        });
    }
}

TEST(PlanSearch, DoesNotDependOnTheNumberOfThreads) {
    PlanRequest request = request_for("mixtral-8x7b", 64, 256, 4096, "megatron-core");
    request.rates = program::resolve_rates(request.implementation, request.cluster);
    const topologies::Cluster cluster(request.cluster);
    std::vector<PlanSearch> found;
    for (const int threads : {1, 2, 8}) {
        with_threads(threads, [&] { found.push_back(search_plans(request, cluster, 5, 1)); });
    }
    const PlanSearch& one = found.front();
    EXPECT_GT(one.simulated, 5);
    for (const PlanSearch& other : found) {
        EXPECT_EQ(other.considered, one.considered);
        EXPECT_EQ(other.bounded, one.bounded);
        EXPECT_EQ(other.too_large, one.too_large);
        EXPECT_EQ(other.layer_lowerings, one.layer_lowerings);
        EXPECT_EQ(other.candidate_lowerings, one.candidate_lowerings);
        EXPECT_EQ(other.simulated, one.simulated);
        EXPECT_EQ(other.least_open_s, one.least_open_s);
        ASSERT_EQ(other.results.size(), one.results.size());
        for (std::size_t i = 0; i < one.results.size(); ++i) {
            EXPECT_EQ(program::to_json_text(other.results[i].plan), program::to_json_text(one.results[i].plan)) << i;
            EXPECT_EQ(other.results[i].step_time_s, one.results[i].step_time_s) << i;
            EXPECT_EQ(other.results[i].step_time_high_s, one.results[i].step_time_high_s) << i;
            EXPECT_EQ(other.results[i].peak_memory_gib, one.results[i].peak_memory_gib) << i;
        }
    }
}

TEST(PlanSearch, TellsAnObserverHowFarItIs) {
    PlanRequest request = request_for("llama3-70b", 512, 1024, 8192, "megatron-core");
    request.rates = program::resolve_rates(request.implementation, request.cluster);
    std::int64_t calls = 0, decided = 0;
    double open_s = 0;
    bool is_over = false;
    request.observer = [&](const SearchProgress& progress) {
        ++calls;
        EXPECT_FALSE(is_over);
        is_over = progress.is_over;
        EXPECT_EQ(progress.implementation, "megatron-core");
        EXPECT_LE(progress.decided, progress.considered);
        EXPECT_GE(progress.decided, decided);
        EXPECT_GE(progress.least_open_s, open_s);
        EXPECT_GT(progress.elapsed_s, 0);
        decided = progress.decided;
        open_s = progress.least_open_s;
    };
    const PlanSearch found = search_plans(request, topologies::Cluster(request.cluster), 1, 1);
    EXPECT_GT(calls, 1);  // it takes more than a second
    EXPECT_TRUE(is_over);
    EXPECT_LE((1 - kStepTolerance) * open_s, found.results.front().step_time_s);
}

}  // namespace
}  // namespace orrery::sim
