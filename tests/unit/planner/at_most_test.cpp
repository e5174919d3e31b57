// The search over numbers of devices, compared with the search of each number.
#include "sim/planner/at_most.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "tests/unit/planner/brute_force.h"

namespace orrery::sim {
namespace {

using program::PlanResult;

PlanRequest small_request(std::int64_t devices) {
    PlanRequest request = unfused(plain(request_for("gpt2", 1, 24, 512)));
    request.model.layers = 4;
    request.rates = program::resolve_rates(request.implementation, request.cluster);
    request.devices = devices;
    return request;
}

/// The best plan of each usable number of devices, fastest first.
std::vector<PlanResult> best_of_each(const PlanRequest& request) {
    std::vector<PlanResult> best;
    for (std::int64_t devices = 1; devices <= request.devices; ++devices) {
        const std::optional<PlanRequest> sized = on_devices(request, devices);
        if (sized) best.push_back(BruteForce(*sized).results().front());
    }
    std::sort(best.begin(), best.end(), [](const auto& a, const auto& b) { return a.step_time_s < b.step_time_s; });
    return best;
}

TEST(AtMost, FindsTheBestPlanOfAllNumbers) {
    for (const std::int64_t most : {7, 21}) {
        const PlanRequest request = small_request(most);
        const PlanSearch found = search_at_most(request, 1, 1);
        const std::vector<PlanResult> each = best_of_each(request);
        ASSERT_EQ(feasible_of(found).size(), 1U);
        const PlanResult& best = found.results.front();
        EXPECT_EQ(best.step_time_s, each.front().step_time_s) << most;
        EXPECT_EQ(best.spare_devices, most - best.plan.parallelism.world_size());
        EXPECT_EQ(proven_results(found), 1U);
        EXPECT_LT(found.device_counts.size(), each.size()) << "bounds exclude the small numbers";
        EXPECT_TRUE(found.device_counts.contains(best.plan.parallelism.world_size()));
    }
}

TEST(AtMost, LeastOpenBoundHoldsForNumbersThatWereNotSearched) {
    const PlanRequest request = small_request(24);
    const PlanSearch found = search_at_most(request, 1, 1);
    int unsearched = 0;
    for (const PlanResult& result : best_of_each(request)) {
        if (found.device_counts.contains(result.plan.parallelism.world_size())) continue;
        ++unsearched;
        EXPECT_GE(result.step_time_s, found.least_open_s) << result.plan.name;
    }
    EXPECT_GT(unsearched, 0);
}

TEST(AtMost, KeepsPlansOfSeveralNumbers) {
    const PlanSearch found = search_at_most(small_request(8), 100, 100);
    const std::vector<PlanResult> results = feasible_of(found);
    std::set<std::int64_t> worlds;
    for (const PlanResult& result : results) {
        worlds.insert(result.plan.parallelism.world_size());
        EXPECT_EQ(result.plan.parallelism.world_size() + result.spare_devices, 8);
    }
    EXPECT_GT(worlds.size(), 1U);
    EXPECT_TRUE(std::is_sorted(results.begin(), results.end(),
                               [](const auto& a, const auto& b) { return a.step_time_s < b.step_time_s; }));
}

TEST(AtMost, ListsOnlyPlansThatBeatTheRivals) {
    const PlanRequest request = *on_devices(small_request(8), 8);
    const topologies::Cluster cluster(request.cluster);
    const PlanSearch alone = search_plans(request, cluster, 3, 1);
    const double second = alone.results[1].step_time_s;
    const std::vector<double> rivals{second, second};
    const PlanSearch among = search_plans(request, cluster, 3, 1, rivals);
    ASSERT_EQ(feasible_of(among).size(), 1U);
    EXPECT_EQ(among.results.front().step_time_s, alone.results.front().step_time_s);
    const std::vector<double> faster(3, 1e-9);
    const PlanSearch beaten = search_plans(request, cluster, 3, 1, faster);
    EXPECT_TRUE(feasible_of(beaten).empty());
    EXPECT_EQ(beaten.simulated, 0);
}

TEST(AtMost, UsesNoPartOfANodeBesideOthers) {
    const PlanRequest request = small_request(64);
    EXPECT_TRUE(on_devices(request, 6).has_value());
    EXPECT_FALSE(on_devices(request, 12).has_value());
    EXPECT_FALSE(on_devices(request, 7).has_value()) << "7 divides nothing";
    EXPECT_EQ(on_devices(request, 24)->cluster.nodes, 3);
    PlanRequest one_switch = request;
    one_switch.cluster.fabric = topologies::FabricKind::single_switch;
    one_switch.cluster.fabric_shape = {.radix = 24};
    EXPECT_TRUE(on_devices(one_switch, 24).has_value());
    EXPECT_FALSE(on_devices(one_switch, 32).has_value()) << "the switch has no ports left";
    EXPECT_EQ(search_at_most(one_switch, 1, 1).device_counts.count(32), 0U);
}

TEST(AtMost, NearestNumbersOfALargeCluster) {
    PlanRequest request = request_for("llama3-70b", 8, 1024, 8192, "megatron-core");
    EXPECT_EQ(usable_at_most(request, 1000), 992);
    EXPECT_EQ(usable_at_least(request, 1000), 1008);
    EXPECT_EQ(usable_at_most(request, 100'000), 98'304);
    request.tp = 8;
    request.pp = 80;
    EXPECT_EQ(usable_at_most(request, 1000), 640);
    EXPECT_EQ(usable_at_most(request, 639), std::nullopt);
    EXPECT_EQ(usable_at_most(request, 1296, 2), 1280);
    EXPECT_EQ(usable_at_most(request, 1296, 1), 1280) << "1,296 and the numbers up to 1,280 have no mesh";
}

TEST(AtMost, ThrowsIfNothingFits) {
    PlanRequest request = request_for("llama3-405b", 8, 8, 2048, "megatron-core");
    EXPECT_THROW((void)search_at_most(request, 1, 1), InfeasibleError);
    request.tp = 8;
    request.devices = 4;
    EXPECT_THROW((void)search_at_most(request, 1, 1), InputError);
}

}  // namespace
}  // namespace orrery::sim
