// Plans that earlier spaces of the search did not hold: each is accepted when it is asked for, and rank 1 of the whole
// space is not slower.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/unit/planner/planner_cases.h"

namespace orrery::sim {
namespace {

using program::DataParallel;

struct Listed {
    const char* name;
    const char* model;
    const char* cluster;
    std::int64_t devices, global_batch, sequence_length;
    std::function<void(PlanRequest&)> ask;
    std::function<bool(const program::Plan&)> has_it;
};

const std::vector<Listed>& listed_plans() {
    static const std::vector<Listed> plans{
        {"UnevenChunksOf405B", "llama3.1-405b", "dgx-h100", 16'384, 2'048, 8'192,
         [](PlanRequest& request) {
             request.tp = 8;
             request.pp = 16;
             request.chunks = 8;
             request.schedules = {program::Schedule::interleaved};
             request.recompute = {program::Recompute::selective};
         },
         [](const program::Plan& plan) { return plan.parallelism.stage_layers.size() == 128; }},
        {"SetsOfShardsWithZero2", "llama3-8b", "dgx-h100", 4'096, 4'096, 8'192,
         [](PlanRequest& request) {
             request.data_parallel = {DataParallel::zero2};
             request.dp_shard = 128;
         },
         [](const program::Plan& plan) { return plan.parallelism.dp_shard == 128; }},
        {"SetsOfShardsWithZero3", "llama3-70b", "dgx-h100", 2'048, 2'048, 8'192,
         [](PlanRequest& request) {
             request.data_parallel = {DataParallel::zero3};
             request.dp_shard = 128;
         },
         [](const program::Plan& plan) { return plan.parallelism.dp_shard == 128; }},
        {"StagesBeforeReplicas", "llama3-8b", "dgx-h100", 4'096, 4'096, 8'192,
         [](PlanRequest& request) {
             request.pp = 2;
             request.pp_before_dp = true;
         },
         [](const program::Plan& plan) { return plan.parallelism.order == kStagesBeforeReplicas; }},
        {"Zero2Of8B", "llama3-8b", "dgx-a100-40gb", 16, 128, 8'192,
         [](PlanRequest& request) { request.data_parallel = {DataParallel::zero2}; },
         [](const program::Plan& plan) { return plan.parallelism.data_parallel == DataParallel::zero2; }},
        {"Zero2Of13B", "llama2-13b", "dgx-a100-40gb", 128, 1'024, 4'096,
         [](PlanRequest& request) { request.data_parallel = {DataParallel::zero2}; },
         [](const program::Plan& plan) { return plan.parallelism.data_parallel == DataParallel::zero2; }},
        {"ContextParallelOf4096Positions", "llama3-8b", "dgx-h100", 16, 128, 4'096,
         [](PlanRequest& request) { request.cp = 2; },
         [](const program::Plan& plan) { return plan.parallelism.cp == 2; }},
        {"UnevenStagesOf8B", "llama3-8b", "dgx-a100-40gb", 16, 128, 8'192,
         [](PlanRequest& request) {
             request.pp = 4;
             request.stage_layers = {7, 8, 8, 9};
         },
         [](const program::Plan& plan) { return plan.parallelism.stage_layers.back() == 9; }},
        {"OtherRecomputedParts", "llama3-8b", "dgx-a100-40gb", 16, 128, 8'192,
         [](PlanRequest& request) {
             request.recompute = {program::Recompute::selective};
             request.training.memory.recompute_parts = {"norm", "activation"};
         },
         [](const program::Plan& plan) { return plan.training.memory.recompute_parts.size() == 2; }}};
    return plans;
}

class ListedPlans : public testing::TestWithParam<std::size_t> {};

TEST_P(ListedPlans, AreAcceptedAndNotFasterThanRank1) {
    const Listed& listed = listed_plans().at(GetParam());
    PlanRequest request =
        request_for(listed.model, listed.devices, listed.global_batch, listed.sequence_length, "orrery");
    request.cluster = topologies::load_cluster(listed.cluster, listed.devices);
    request = with_rates(request);
    const topologies::Cluster cluster(request.cluster);
    const PlanSearch best = search_plans(request, cluster, 1, 1);
    listed.ask(request);
    const PlanSearch asked = search_plans(request, cluster, 1, 1);
    ASSERT_FALSE(best.results.empty());
    ASSERT_FALSE(asked.results.empty());
    ASSERT_TRUE(asked.results.front().feasible);
    EXPECT_TRUE(listed.has_it(asked.results.front().plan)) << asked.results.front().plan.name;
    EXPECT_LE(best.results.front().step_time_s, (1 + kStepTolerance) * asked.results.front().step_time_s)
        << best.results.front().plan.name << " and " << asked.results.front().plan.name;
}

INSTANTIATE_TEST_SUITE_P(All, ListedPlans, testing::Range(std::size_t{0}, listed_plans().size()),
                         [](const auto& one) { return listed_plans().at(one.param).name; });

}  // namespace
}  // namespace orrery::sim
