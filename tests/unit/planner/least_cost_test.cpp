// The search for the cheapest plans, compared with the cheapest plan of each number of devices.
#include "sim/planner/least_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "tests/unit/planner/brute_force.h"

namespace orrery::sim {
namespace {

using program::Objective;
using program::PlanResult;

constexpr std::int64_t kMost = 32, kBatch = 96;

PlanRequest priced_request() {
    PlanRequest request = plain(request_for("gpt2", 1, kBatch, 512));
    request.model.layers = 4;
    request.rates = program::resolve_rates(request.implementation, request.cluster);
    request.devices = kMost;
    return request;
}

program::CostFigures priced(double usd, double node_watts = 0) {
    program::CostFigures all;
    all.usd_per_device_hour = {.value = usd, .as_of = "2026-11", .source = "a test"};
    all.watts = {.value = 700, .as_of = "", .source = "a test"};
    if (node_watts > 0) all.node_watts = {.value = node_watts, .as_of = "", .source = "a test"};
    return all;
}

CheapestPlans cheapest(const PlanRequest& request, const CostGoal& goal, std::size_t keep = 1) {
    const auto search = [&](const StepWeight& weight, double most_step_s, std::size_t plans) {
        PlanRequest limited = request;
        limited.most_step_s = most_step_s;
        return search_weighed(limited, weight, plans, plans);
    };
    return least_cost_at_most(search, request.cluster, keep, goal);
}

/// The fastest plan of each usable number of devices.
const std::map<std::int64_t, double>& steps_by_devices() {
    static const std::map<std::int64_t, double> steps = [] {
        std::map<std::int64_t, double> all;
        const PlanRequest request = priced_request();
        for (std::int64_t devices = 1; devices <= kMost; ++devices) {
            const std::optional<PlanRequest> sized = on_devices(request, devices);
            if (sized) all[devices] = BruteForce(*sized).results().front().step_time_s;
        }
        return all;
    }();
    return steps;
}

/// Dollars of a step at a dollar a device-hour, on whole nodes of 8.
double step_usd(std::int64_t devices, double step_s) {
    return static_cast<double>((devices + 7) / 8 * 8) * step_s / 3600;
}

double brute_force_usd(double limit_s) {
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [devices, step_s] : steps_by_devices()) {
        if (step_s <= limit_s) least = std::min(least, step_usd(devices, step_s));
    }
    return least;
}

double usd_of(const PlanResult& result) {
    return step_usd(result.plan.parallelism.world_size(), result.step_time_s);
}

double fastest_step_s() {
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [devices, step_s] : steps_by_devices()) least = std::min(least, step_s);
    return least;
}

TEST(LeastCost, IsThatOfAllNumbersOfDevices) {
    const CheapestPlans plans = cheapest(priced_request(), {.figures = priced(1)});
    const PlanResult& best = plans.found.results.front();
    EXPECT_NEAR(usd_of(best), brute_force_usd(std::numeric_limits<double>::infinity()), kStepTolerance * usd_of(best));
    EXPECT_EQ(plans.found.summary.proven_ranks, 1U);
    EXPECT_EQ(plans.found.summary.proven_gap, 0);
    EXPECT_EQ(plans.found.summary.objective, Objective::cost);
    EXPECT_GT(plans.found.summary.counts.considered, 0);
    EXPECT_GT(usd_of(best), 0);
    // Of the tokens of a step.
    EXPECT_NEAR(*best.usd_per_billion_tokens, usd_of(best) * 1e9 / (kBatch * 512), 1e-6 * *best.usd_per_billion_tokens);
}

TEST(LeastCost, WithAStepLimitIsThatOfTheFastEnough) {
    std::set<std::int64_t> chosen;
    for (const double slack : {0.0, 0.02, 0.2, 1.0, 10.0}) {
        const double limit_s = (1 + slack) * fastest_step_s();
        const CheapestPlans plans = cheapest(priced_request(), {.figures = priced(1), .limit = {.slack = slack}});
        const PlanResult& best = plans.found.results.front();
        EXPECT_LE(best.step_time_s, limit_s * (1 + 1e-12)) << slack;
        EXPECT_NEAR(usd_of(best), brute_force_usd(limit_s * (1 + 1e-12)), kStepTolerance * usd_of(best)) << slack;
        EXPECT_EQ(plans.found.summary.proven_gap, 0) << slack;
        EXPECT_NEAR(plans.found.summary.step_limit_s, limit_s, 1e-12);
        EXPECT_EQ(plans.found.summary.counts.searches, 2);
        chosen.insert(best.plan.parallelism.world_size());
    }
    EXPECT_GT(chosen.size(), 1U) << "a tight limit needs a larger cluster";
    EXPECT_THROW((void)cheapest(priced_request(), {.figures = priced(1), .limit = {.seconds = 0.5 * fastest_step_s()}}),
                 TooSlowError);
}

TEST(LeastCost, TwiceThePriceIsTwiceTheDollarsForTheSamePlans) {
    const CheapestPlans once = cheapest(priced_request(), {.figures = priced(3)}, 5);
    const CheapestPlans twice = cheapest(priced_request(), {.figures = priced(6)}, 5);
    ASSERT_GE(once.found.results.size(), 5U);
    ASSERT_EQ(once.found.results.size(), twice.found.results.size());
    double before = 0;
    for (std::size_t i = 0; i < 5; ++i) {
        const PlanResult &a = once.found.results[i], &b = twice.found.results[i];
        EXPECT_EQ(a.plan.name, b.plan.name);
        EXPECT_DOUBLE_EQ(*b.usd_per_billion_tokens, 2 * *a.usd_per_billion_tokens);
        EXPECT_EQ(a.kwh_per_billion_tokens, b.kwh_per_billion_tokens);
        EXPECT_GE(*a.usd_per_billion_tokens, before) << "cheapest first";
        before = *a.usd_per_billion_tokens;
    }
    EXPECT_EQ(once.found.summary.proven_ranks, 5U);
}

TEST(LeastCost, EnergyIsOfWholeNodes) {
    const CostGoal goal{.objective = Objective::energy, .figures = priced(1, 4000)};
    const CheapestPlans plans = cheapest(priced_request(), goal);
    const PlanResult& best = plans.found.results.front();
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [devices, step_s] : steps_by_devices()) {
        const auto nodes = static_cast<double>((devices + 7) / 8);
        least = std::min(least, nodes * (8 * 0.7 + 4) * step_s / 3600 * 1e9 / (kBatch * 512));
    }
    EXPECT_NEAR(*best.kwh_per_billion_tokens, least, kStepTolerance * least);
    EXPECT_EQ(plans.found.summary.objective, Objective::energy);
}

TEST(LeastCost, DevicesOfRentedNodesArePaidFor) {
    PlanRequest request = priced_request();
    EXPECT_EQ(rented_devices(request.cluster, 6), 8);
    EXPECT_EQ(rented_devices(request.cluster, 16), 16);
    request.devices = 6;
    const CheapestPlans plans = cheapest(request, {.figures = priced(1)});
    const PlanResult& best = plans.found.results.front();
    EXPECT_EQ(best.plan.parallelism.world_size() + best.spare_devices, 8);
}

TEST(LeastCost, OnGivenDevicesIsThatOfTheFastestPlans) {
    const PlanRequest request = *on_devices(priced_request(), 8);
    const topologies::Cluster cluster(request.cluster);
    const auto search = [&](std::int64_t, std::size_t keep) { return search_plans(request, cluster, keep, 1); };
    const ObjectiveSearch found = least_cost(search, 3, {.figures = priced(2)});
    const PlanSearch fastest = search_plans(request, cluster, 3, 1);
    ASSERT_EQ(found.results.size(), fastest.results.size());
    for (std::size_t i = 0; i < fastest.results.size(); ++i) {
        EXPECT_EQ(found.results[i].plan.name, fastest.results[i].plan.name);
        EXPECT_GT(*found.results[i].usd_per_billion_tokens, 0);
    }
    const double limit_s = fastest.results.front().step_time_s;
    const ObjectiveSearch limited = least_cost(search, 3, {.figures = priced(2), .limit = {.seconds = limit_s}});
    for (const PlanResult& result : limited.results) EXPECT_LE(result.step_time_s, limit_s);
    EXPECT_THROW((void)least_cost(search, 3, {.figures = priced(2), .limit = {.seconds = limit_s / 2}}), TooSlowError);
}

}  // namespace
}  // namespace orrery::sim
