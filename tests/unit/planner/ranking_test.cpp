// What a search's results say about their order: the gap, ties, and the summary.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/unit/planner/planner_cases.h"

namespace orrery::sim {
namespace {

program::PlanResult result(double step_s, bool feasible = true) {
    program::PlanResult one;
    one.plan.name = std::to_string(step_s);
    one.step_time_s = step_s;
    one.feasible = feasible;
    one.plan.rates.set(program::RateKey::products, {.name = "a rate"});
    one.slopes = {{"a rate", 0.5}};
    return one;
}

TEST(Ranking, TheGapIsToTheLeastOpenBound) {
    PlanSearch search{.results = {result(2), result(3)}};
    EXPECT_EQ(proven_gap(search), 0) << "every plan was simulated";
    search.least_open_s = 2.5;
    EXPECT_EQ(proven_gap(search), 0);
    EXPECT_EQ(proven_results(search), 1U);
    search.least_open_s = 1.5;
    EXPECT_DOUBLE_EQ(proven_gap(search), 0.25);
    EXPECT_EQ(proven_results(search), 0U);
    search.results = {result(1, false)};
    EXPECT_EQ(proven_gap(search), 0);
}

TEST(Ranking, EveryFeasibleResultIsComparedWithTheFirst) {
    std::vector<program::PlanResult> results{result(2), result(2.02), result(5), result(0, false)};
    compare_with_first(results);
    EXPECT_EQ(results[0].to_first->ratio, 1);
    EXPECT_DOUBLE_EQ(results[1].to_first->ratio, 1.01);
    EXPECT_TRUE(results[1].to_first->is_tie());
    EXPECT_FALSE(results[2].to_first->is_tie());
    EXPECT_FALSE(results[3].to_first.has_value());
    std::vector<program::PlanResult> none;
    compare_with_first(none);
}

TEST(Ranking, TheSummaryOfASearchAgreesWithIt) {
    PlanRequest request = plain(request_for("gpt2", 4, 8, 512));
    request.rates = program::resolve_rates(request.implementation, request.cluster);
    PlanSearch found = search(request, 2);
    const program::SearchSummary summary = summary_of(found);
    EXPECT_EQ(summary.counts.considered, found.considered);
    EXPECT_EQ(summary.counts.sketched, found.candidate_lowerings);
    EXPECT_EQ(summary.counts.simulated, found.simulated);
    EXPECT_EQ(summary.proven_gap, 0);
    EXPECT_EQ(summary.proven_ranks, proven_results(found));
    EXPECT_EQ(summary.tolerance, kStepTolerance);
    EXPECT_GT(summary.memory_limit_gib, 70);
    ASSERT_EQ(summary.spaces.size(), 1U);
    for (const program::PlanResult& one : feasible_of(found)) {
        EXPECT_FALSE(one.slopes.empty());
        ASSERT_FALSE(one.shares.empty());
        EXPECT_EQ(one.limit, one.shares.front().limit);
    }
    // A second implementation's space stands beside the first one's.
    merge(found, search(request, 2), 2);
    EXPECT_EQ(summary_of(found).spaces.size(), 2U);
    EXPECT_EQ(found.memory_limit_bytes, search(request, 1).memory_limit_bytes);
}

TEST(Ranking, APlanThatDoesNotFitNamesTheMemoryItLacks) {
    PlanRequest request = plain(request_for("llama3-8b", 8, 8, 8192));
    std::set<program::Limit> limits;
    for (std::int64_t gib = 25; gib <= 60; gib += 5) {
        request.max_memory_bytes = gib << 30;
        for (const program::PlanResult& one : search(request, 1).results) {
            if (one.feasible) continue;
            ASSERT_TRUE(one.limit.has_value());
            limits.insert(*one.limit);
            EXPECT_EQ(one.limit == program::Limit::memory_states, one.reason.find("alone") != std::string::npos)
                << one.reason;
        }
    }
    EXPECT_EQ(limits, (std::set{program::Limit::memory_states, program::Limit::memory_activations}));
}

}  // namespace
}  // namespace orrery::sim
