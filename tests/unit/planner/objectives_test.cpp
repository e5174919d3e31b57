// Least memory and the front of time and memory, against the simulation of every plan of small spaces.
#include "sim/planner/objectives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/units.h"
#include "tests/unit/planner/brute_force.h"

namespace orrery::sim {
namespace {

using program::PlanResult;

std::vector<PlanRequest> ranked_requests() {
    std::vector<PlanRequest> requests{request_for("gpt2", 4, 8, 512), request_for("llama3-8b", 8, 8, 2048),
                                      request_for("mixtral-8x7b", 8, 8, 1024)};
    for (PlanRequest& request : requests) {
        request.model.layers = 4;
        request.tries_shard_groups = request.tries_rank_orders = false;
        request.cp = 1;
        request.rates = program::resolve_rates(request.implementation, request.cluster);
    }
    requests[1].tp = 2, requests[1].pp = 2;
    requests[2].tp = 1, requests[2].ep = 4, requests[2].micro_batch_size = 1;
    return requests;
}

LimitedSearch search_of(const PlanRequest& request, const topologies::Cluster& cluster) {
    return [&request, &cluster](std::int64_t max_memory_bytes, std::size_t keep) {
        PlanRequest limited = request;
        limited.max_memory_bytes = max_memory_bytes;
        return search_plans(limited, cluster, keep, 1);
    };
}

std::int64_t bytes_of(const PlanResult& result) {
    return std::llround(result.peak_memory_gib * kGibibyte);
}

/// The fastest plan of every one that fits into a limit.
double fastest_s(BruteForce& brute, std::int64_t limit) {
    brute.limit(limit);
    const std::vector<PlanResult> every = brute.results();
    return every.empty() ? std::numeric_limits<double>::infinity() : every.front().step_time_s;
}

TEST(Objectives, LeastMemoryIsThatOfEveryPlan) {
    for (const PlanRequest& request : ranked_requests()) {
        BruteForce brute(request);
        const topologies::Cluster cluster(request.cluster);
        const LeastMemory least = least_memory_of(request, cluster);
        EXPECT_EQ(least.bytes, brute.least_bytes()) << request.model.name;
        const ObjectiveSearch found = least_memory(search_of(request, cluster), least, 3, {});
        EXPECT_EQ(bytes_of(found.results.front()), least.bytes) << request.model.name;
        EXPECT_EQ(found.summary.objective, program::Objective::memory);
        EXPECT_EQ(found.summary.proven_gap, 0);
        // Of the plans with that memory, the fastest.
        EXPECT_LE((1 - kStepTolerance) * found.results.front().step_time_s, fastest_s(brute, least.bytes));
        EXPECT_EQ(fastest_s(brute, least.bytes - 1), std::numeric_limits<double>::infinity());
    }
}

TEST(Objectives, LeastMemoryWithinALimitOnTheStep) {
    for (const PlanRequest& request : ranked_requests()) {
        BruteForce brute(request);
        const topologies::Cluster cluster(request.cluster);
        const LeastMemory least = least_memory_of(request, cluster);
        const double best_s = fastest_s(brute, 0);
        for (const double slack : {0.02, 0.3}) {
            const ObjectiveSearch found = least_memory(search_of(request, cluster), least, 3, {.slack = slack});
            const PlanResult& first = found.results.front();
            EXPECT_NEAR(found.summary.step_limit_s, (1 + slack) * best_s, kStepTolerance * best_s);
            EXPECT_LE(first.step_time_s, found.summary.step_limit_s);
            EXPECT_LE(found.summary.proven_gap, kMemoryTolerance);
            // Nothing that needs less than the proven bound is fast enough.
            const auto open =
                static_cast<std::int64_t>((1 - found.summary.proven_gap) * first.peak_memory_gib * kGibibyte);
            EXPECT_GT(fastest_s(brute, open - 1), (1 - kStepTolerance) * found.summary.step_limit_s)
                << request.model.name << " " << slack;
        }
    }
}

TEST(Objectives, EveryPointOfAFrontIsTheFastestPlanWithinItsLimits) {
    for (const PlanRequest& request : ranked_requests()) {
        BruteForce brute(request);
        const topologies::Cluster cluster(request.cluster);
        const LeastMemory least = least_memory_of(request, cluster);
        const ObjectiveSearch found = pareto_front(search_of(request, cluster), least, 6, {});
        std::vector<PlanResult> front = found.results;
        std::erase_if(front, [](const PlanResult& result) { return !result.feasible; });
        ASSERT_GT(front.size(), 2U) << request.model.name;
        EXPECT_LE(front.size(), 6U);
        EXPECT_EQ(found.summary.proven_ranks, front.size());
        EXPECT_EQ(bytes_of(front.back()), least.bytes);
        for (std::size_t i = 0; i < front.size(); ++i) {
            ASSERT_TRUE(front[i].fastest_within.has_value());
            const auto [low_gib, high_gib] = *front[i].fastest_within;
            EXPECT_EQ(low_gib, front[i].peak_memory_gib);
            for (const double gib : {low_gib, high_gib}) {
                EXPECT_LE((1 - kStepTolerance) * front[i].step_time_s, fastest_s(brute, std::llround(gib * kGibibyte)))
                    << request.model.name << " " << gib;
            }
            if (i == 0) continue;
            EXPECT_GT(front[i].step_time_s, front[i - 1].step_time_s);
            EXPECT_LT(front[i].peak_memory_gib, front[i - 1].peak_memory_gib);
            EXPECT_LT(high_gib, front[i - 1].fastest_within->low_gib);
        }
        EXPECT_GT(found.summary.counts.searches, 2);
    }
}

TEST(Objectives, AStepLimitEndsTheFront) {
    const PlanRequest request = ranked_requests().front();
    const topologies::Cluster cluster(request.cluster);
    const LeastMemory least = least_memory_of(request, cluster);
    const LimitedSearch search = search_of(request, cluster);
    const ObjectiveSearch whole = pareto_front(search, least, 5, {});
    const ObjectiveSearch part = pareto_front(search, least, 5, {.slack = 0.3});
    const auto end = whole.results.begin() + static_cast<std::ptrdiff_t>(whole.summary.proven_ranks);
    const auto within = std::count_if(whole.results.begin(), end, [&](const PlanResult& result) {
        return result.step_time_s <= part.summary.step_limit_s;
    });
    ASSERT_LT(within, static_cast<std::ptrdiff_t>(whole.summary.proven_ranks)) << "the limit excludes some plan";
    EXPECT_GE(part.summary.proven_ranks, static_cast<std::size_t>(within));
    EXPECT_EQ(part.results.front().plan.name, whole.results.front().plan.name);
    for (std::size_t i = 0; i < part.summary.proven_ranks; ++i) {
        EXPECT_LE(part.results[i].step_time_s, part.summary.step_limit_s);
    }
}

TEST(Objectives, AStepThatNoPlanReachesIsRefusedWithTheFastestOne) {
    const PlanRequest request = ranked_requests().front();
    const topologies::Cluster cluster(request.cluster);
    const LeastMemory least = least_memory_of(request, cluster);
    try {
        (void)least_memory(search_of(request, cluster), least, 3, {.seconds = 1e-6});
        FAIL() << "no error";
    } catch (const InfeasibleError& error) {
        EXPECT_NE(std::string(error.what()).find("the fastest one takes"), std::string::npos) << error.what();
    }
}

TEST(Objectives, AMemoryLimitBelowTheDevicesIsKept) {
    const PlanRequest request = ranked_requests()[1];
    const topologies::Cluster cluster(request.cluster);
    const PlanSearch free = search_of(request, cluster)(0, 3);
    const std::int64_t limit = bytes_of(free.results.front()) - 1;
    const PlanSearch limited = search_of(request, cluster)(limit, 3);
    EXPECT_EQ(limited.memory_limit_bytes, limit);
    EXPECT_GT(free.memory_limit_bytes, limit);
    for (const PlanResult& result : feasible_of(limited)) EXPECT_LE(bytes_of(result), limit);
    EXPECT_GE(limited.results.front().step_time_s, free.results.front().step_time_s);
    EXPECT_THROW((void)search_of(request, cluster)(least_memory_of(request, cluster).bytes - 1, 3), InfeasibleError);
}

}  // namespace
}  // namespace orrery::sim
